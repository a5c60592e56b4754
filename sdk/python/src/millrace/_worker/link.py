"""The connection of a worker that dials in: one thread that owns the socket.

The thread and not the event loop, because a handler that computes holds up the loop, and the server gives
a connection up after a second of silence.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from .._protocol.frames import OLDEST_VERSION, VERSION, Frame, ProtocolError, Reader, Type, encode

# The server wants a frame every 300 ms.
_HEARTBEAT_SECONDS = 0.2
_CONNECT_SECONDS = 10.0
_GOODBYE_SECONDS = 1.0
_HEAD_LIMIT_BYTES = 16 * 1024
_CHUNK_BYTES = 256 * 1024
# A server that takes no bytes for so long is gone, whatever TCP hopes.
_UNACKNOWLEDGED_MS = 5_000


class LinkError(Exception):
    """The connection could not be made, or has ended. ``refused`` says that the server does not want it."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class _OlderServer(LinkError):
    """The server does not speak this version of the protocol."""


def open_link(url: str, app: str, key: str | None, on_frames: Callable[[list[Frame]], None]) -> Link:
    """A connection in the newest version of the protocol that the server speaks."""
    for version in range(VERSION, OLDEST_VERSION, -1):
        try:
            return Link(url, app, key, on_frames, version)
        except _OlderServer:
            pass
    return Link(url, app, key, on_frames, OLDEST_VERSION)


class Link:
    """Frames to and from a server. ``on_frames`` and ``on_end`` are called in the link's thread."""

    def __init__(
        self, url: str, app: str, key: str | None, on_frames: Callable[[list[Frame]], None], version: int
    ) -> None:
        #: The version of the protocol that both sides speak.
        self.version = version
        self._on_frames = on_frames
        self._reader = Reader()
        self._outgoing = bytearray()
        self._lock = threading.Lock()
        self._closed = False
        self._finishing = False
        self._last_sent = time.monotonic()
        self._socket = _dial(url)
        try:
            self._wake_receiver, self._wake_sender = socket.socketpair()
            self._wake_receiver.setblocking(False)
            self._wake_sender.setblocking(False)
            self._upgrade(url, app, key)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def send(self, data: bytes) -> None:
        """Queues frames; any thread may call it."""
        with self._lock:
            self._outgoing += data
        self._wake()

    def close(self) -> None:
        """Ends the connection, from any thread."""
        self._closed = True
        self._wake()

    def abandon(self) -> None:
        """Ends a connection that was made and is not served."""
        for part in (self._socket, self._wake_receiver, self._wake_sender):
            part.close()

    def finish(self) -> None:
        """Ends the connection once all frames have left, from any thread."""
        self._finishing = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except OSError:
            pass  # The thread has a wake-up to read already, or has ended.

    def run(self, on_end: Callable[[LinkError | None], None]) -> None:
        """Serves the connection until it ends."""
        error: LinkError | None = None
        try:
            while not self._closed:
                self._round()
                if self._finishing and not self._outgoing:
                    self._say_goodbye()
                    break
        except (OSError, ProtocolError) as problem:
            error = LinkError(f"the connection to the server is lost: {problem}")
        except LinkError as problem:
            error = problem
        finally:
            self.abandon()
            on_end(error)

    def _say_goodbye(self) -> None:
        """Waits until the server has read all and closed: a socket with bytes to read would be reset."""
        end = time.monotonic() + _GOODBYE_SECONDS
        self._socket.shutdown(socket.SHUT_WR)
        while (left := end - time.monotonic()) > 0 and not self._closed:
            if select.select([self._socket], [], [], min(left, _HEARTBEAT_SECONDS))[0]:
                try:
                    if not self._socket.recv(_CHUNK_BYTES):
                        return
                except (BlockingIOError, ssl.SSLError):
                    pass
                except OSError:
                    return

    def _round(self) -> None:
        with self._lock:
            pending = bool(self._outgoing)
        ready_already = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        readable, _, _ = select.select(
            [self._socket, self._wake_receiver],
            [self._socket] if pending else [],
            [],
            0 if ready_already else _HEARTBEAT_SECONDS,
        )
        if self._wake_receiver in readable:
            self._wake_receiver.recv(4096)
        if self._socket in readable or ready_already:
            self._receive()
        with self._lock:
            # By the clock and not by silence: frames that come in say nothing of this worker.
            if not self._outgoing and time.monotonic() - self._last_sent >= _HEARTBEAT_SECONDS:
                self._outgoing += encode(Type.HEARTBEAT, b"")
            self._send_some()

    def _send_some(self) -> None:
        if not self._outgoing:
            return
        try:
            sent = self._socket.send(self._outgoing)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        del self._outgoing[:sent]
        self._last_sent = time.monotonic()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        if not data:
            raise LinkError("the server has closed the connection")
        self._take(data)

    def _take(self, data: bytes) -> None:
        frames = self._reader.feed(data)
        # Answered here, so that the server hears of a worker whose loop is busy.
        answers = [encode(Type.HEARTBEAT, b"", 0, frame.stream) for frame in frames if frame.type is Type.PING]
        if answers:
            with self._lock:
                self._outgoing += b"".join(answers)
        frames = [frame for frame in frames if frame.type is not Type.PING]
        if frames:
            self._on_frames(frames)

    def _upgrade(self, url: str, app: str, key: str | None) -> None:
        parts = urlsplit(url)
        lines = [
            f"GET {parts.path.rstrip('/')}/workers/connect HTTP/1.1",
            f"host: {parts.netloc.rpartition('@')[2]}",
            "connection: upgrade",
            "upgrade: millrace-worker",
            f"millrace-worker-protocol: {self.version}",
            f"millrace-app: {app}",
        ]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        head = b""
        while b"\r\n\r\n" not in head:
            data = self._socket.recv(4096)
            if not data or len(head) > _HEAD_LIMIT_BYTES:
                raise LinkError("the server did not answer as HTTP does")
            head += data
        head, _, rest = head.partition(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].split(b" ")[1:2]
        if status != [b"101"]:
            shown = rest.decode(errors="replace") or head.decode(errors="replace")
            if status == [b"400"] and b"this server speaks version" in rest:
                raise _OlderServer(f"the server refuses the worker: {shown}", True)
            refused = status[:1] < [b"500"]
            raise LinkError(f"the server refuses the worker: {shown}", refused)
        if rest:
            self._take(rest)


def _dial(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the server's URL is http://… or https://…, not {url!r}")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        plain = socket.create_connection((parts.hostname, port), _CONNECT_SECONDS)
    except OSError as error:
        raise LinkError(f"{url} cannot be reached: {error}") from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    if not secure:
        return plain
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or None)
    try:
        return context.wrap_socket(plain, server_hostname=parts.hostname)
    except OSError as error:
        plain.close()
        raise LinkError(f"TLS with {url} failed: {error}") from None
