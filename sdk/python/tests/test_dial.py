"""A worker that dials in, against a server of one socket."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millrace import Service, workflow
from millrace._dial import Dialer, Refused
from millrace._protocol import payloads
from millrace._protocol.frames import VERSION, Frame, Reader, Type, encode
from millrace._protocol.payloads import Cursor, Failure, Kind, Result, Start, Value
from millrace._types import loads

DEADLINE_SECONDS = 10.0


class Echo(Service):
    count: int = 0

    async def add(self, n: int) -> int:
        self.count += n
        return self.count

    async def ask(self, other: str) -> int:
        return await Echo(other).add(1) + await Echo(other).add(2)

    async def together(self) -> list[int]:
        return list(await asyncio.gather(Echo("a").add(1), Echo("b").add(2)))

    async def compute(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(1000))

    async def waits_long(self) -> None:
        await asyncio.wait_for(Echo("x").add(1), 0.05)

    @workflow
    async def sleeps(self) -> None:
        await self.ctx.sleep(1)


class Peer:
    """The server's end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(DEADLINE_SECONDS)
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            self.head += connection.recv(4096)
        self._reader = Reader()
        self._frames: list[Frame] = []
        self.heartbeats = 0

    def accept(self) -> Frame:
        self.connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: millrace-worker\r\n\r\n")
        hello = self.next()
        self.send(Type.READY, payloads.pack_text("bank-1"))
        return hello

    def send(self, type: Type, payload: bytes, flags: int = 0, stream: int = 0) -> None:
        self.connection.sendall(encode(type, payload, flags, stream))

    def start(self, stream: int, handler: str, input: bytes = b"null", kind: Kind = Kind.TRANSACTION) -> None:
        start = Start(
            bytes([stream]) * 16, kind, 5000, 0, "echo", handler, b"k", "i" if kind == 2 else "", 1, b"s" * 16, input
        )
        payload, flags = payloads.encode_start(start)
        self.send(Type.START, payload, flags, stream)

    def answer(self, stream: int, *results: tuple[int, bytes]) -> None:
        for number, data in results:
            self.send(Type.RESULT, payloads.encode_result(Result(number, Value(0, data))), 0, stream)

    def next(self) -> Frame:
        """The next frame that is no heartbeat."""
        end = time.monotonic() + DEADLINE_SECONDS
        while True:
            # Heartbeats come for ever.
            assert time.monotonic() < end, "no frame but heartbeats"
            while not self._frames:
                data = self.connection.recv(65536)
                assert data, "the worker has closed the connection"
                self._frames = self._reader.feed(data)
            frame = self._frames.pop(0)
            if frame.type is not Type.HEARTBEAT:
                return frame
            self.heartbeats += 1

    def drain(self) -> None:
        """The worker says that it is about to stop, and hears that this has arrived."""
        assert self.next() == Frame(Type.DRAIN, 0, 0, b"")
        self.send(Type.READY, payloads.pack_text("bank-1"))

    def turn(self, stream: int) -> list[Frame]:
        frames: list[Frame] = []
        while not frames or frames[-1].type not in (Type.OUTPUT, Type.FAILURE, Type.SUSPEND):
            frames.append(self.next())
            assert frames[-1].stream == stream
        return frames


class Server:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE_SECONDS)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.dialer = Dialer([Echo], self.url, "bank", "key-1")
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self.dialer.run())
        except BaseException as error:
            self.errors.append(error)

    def peer(self) -> Peer:
        return Peer(self.listener.accept()[0])

    def close(self) -> None:
        self.dialer.stop()
        self.listener.close()
        self.thread.join(DEADLINE_SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_the_handshake(server: Server) -> None:
    peer = server.peer()
    lines = peer.head.decode().split("\r\n")
    assert lines[0] == "GET /workers/connect HTTP/1.1"
    for line in (
        "connection: upgrade",
        "upgrade: millrace-worker",
        "authorization: Bearer key-1",
        "millrace-app: bank",
    ):
        assert line in lines
    hello = peer.accept()
    assert hello.type is Type.HELLO
    document = loads(Cursor(hello.payload).bytes())
    assert [service["name"] for service in document["services"]] == ["echo"]
    assert server.dialer.ready.wait(DEADLINE_SECONDS)


def test_an_older_server_is_dialled_in_its_version(server: Server) -> None:
    newest = server.peer()
    assert f"millrace-worker-protocol: {VERSION}" in newest.head.decode().split("\r\n")
    body = b'{"detail":"this server speaks versions 1 to 2: send one of them as `millrace-worker-protocol`"}'
    head = f"HTTP/1.1 400 Bad Request\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    newest.connection.sendall(head + body)
    older = server.peer()
    assert f"millrace-worker-protocol: {VERSION - 1}" in older.head.decode().split("\r\n")
    older.accept()
    assert server.dialer.ready.wait(DEADLINE_SECONDS)


def test_calls_share_the_connection(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "ask", b'"x"')
    assert [frame.type for frame in peer.turn(1)] == [Type.CALL, Type.SUSPEND]
    peer.start(2, "add", b"5")
    assert [frame.type for frame in peer.turn(2)] == [Type.SET, Type.OUTPUT]
    peer.answer(1, (1, b"10"))
    assert [frame.type for frame in peer.turn(1)] == [Type.CALL, Type.SUSPEND]
    peer.answer(1, (2, b"20"))
    assert peer.turn(1)[-1].payload.endswith(b"30")


def test_two_results_may_come_at_once_or_one_by_one(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "together")
    peer.turn(1)
    peer.answer(1, (2, b"20"), (1, b"10"))
    frames = peer.turn(1)
    # A worker that had seen only the first says again what it waits for.
    while frames[-1].type is Type.SUSPEND:
        frames = peer.turn(1)
    assert frames[-1].payload.endswith(b"[10,20]")
    peer.start(2, "together")
    peer.turn(2)
    peer.answer(2, (1, b"1"))
    assert peer.turn(2)[-1].type is Type.SUSPEND
    peer.answer(2, (2, b"2"))
    assert peer.turn(2)[-1].payload.endswith(b"[1,2]")


def test_heartbeats_come_while_a_handler_computes(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.heartbeats = 0
    peer.start(1, "compute", b"1.0")
    peer.send(Type.PING, b"")
    assert peer.turn(1)[-1].type is Type.OUTPUT
    assert peer.heartbeats >= 3


def test_frames_that_come_in_keep_no_heartbeat_back(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "compute", b"1.0")
    # The loop is busy, so nothing answers these; they must not pass for a sign of life.
    for stream in range(2, 12):
        time.sleep(0.08)
        peer.start(stream, "add", b"1")
    peer.heartbeats = 0
    assert peer.turn(1)[-1].type is Type.OUTPUT
    assert peer.heartbeats >= 2


def test_a_cancelled_attempt_says_nothing_more(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "ask", b'"x"')
    peer.turn(1)
    peer.send(Type.CANCEL, payloads.pack_failure(Failure("cancelled", "enough")), 0, 1)
    peer.answer(1, (1, b"10"))
    peer.start(2, "sleeps", kind=Kind.WORKFLOW)
    peer.turn(2)
    peer.send(Type.CANCEL, payloads.pack_failure(Failure("diverged", "the journal has a call")), 0, 2)
    peer.start(3, "add", b"1")
    assert [frame.type for frame in peer.turn(3)] == [Type.SET, Type.OUTPUT]
    assert "echo/k/sleeps: the journal has a call (test_dial.py:" in caplog.text


def test_a_handler_that_goes_on_by_itself_is_heard(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "waits_long")
    assert peer.turn(1)[-1].type is Type.SUSPEND
    frame = peer.turn(1)[-1]
    assert frame.type is Type.FAILURE
    assert b"TimeoutError" in frame.payload


@pytest.mark.parametrize("frames", [encode(Type.START, b"x", 0, 1), b"\xff" * 12, encode(Type.OUTPUT, b"", 0, 1)])
def test_a_server_that_breaks_the_protocol_is_left_and_dialled_again(server: Server, frames: bytes) -> None:
    peer = server.peer()
    peer.accept()
    peer.connection.sendall(frames)
    again = server.peer()
    assert again.accept().type is Type.HELLO


def test_a_lost_connection_is_made_again(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "ask", b'"x"')
    peer.turn(1)
    peer.connection.close()
    peer = server.peer()
    peer.accept()
    # Streams of the connection before are gone; their numbers are free.
    peer.start(1, "add", b"5")
    assert peer.turn(1)[-1].type is Type.OUTPUT


@pytest.mark.parametrize(
    "refuse",
    [
        lambda peer: peer.connection.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno"),
        lambda peer: (
            peer.connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
            peer.next(),
            peer.send(Type.CANCEL, payloads.pack_failure(Failure("app-refused", "no such kind"))),
        ),
    ],
)
def test_a_worker_that_is_refused_ends(server: Server, refuse: Any) -> None:
    peer = server.peer()
    refuse(peer)
    server.thread.join(DEADLINE_SECONDS)
    assert isinstance(server.errors[0], Refused)
    assert "refuses the worker" in str(server.errors[0])


def ended(peer: Peer) -> bool:
    """Whether the worker closes the connection, and says nothing more before."""
    try:
        peer.next()
    except AssertionError as error:
        return "has closed" in str(error)
    return False


def test_a_worker_that_drains_finishes_what_is_under_way(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "ask", b'"x"')
    peer.turn(1)
    peer.start(2, "sleeps", kind=Kind.WORKFLOW)
    peer.turn(2)
    server.dialer.drain()
    peer.drain()
    # What the call waits for may run here as well.
    peer.start(3, "add", b"5")
    assert peer.turn(3)[-1].type is Type.OUTPUT
    peer.answer(1, (1, b"10"))
    peer.turn(1)
    peer.answer(1, (2, b"20"))
    assert peer.turn(1)[-1].payload.endswith(b"30")
    # The workflow sleeps; any worker wakes it.
    assert ended(peer)
    server.thread.join(DEADLINE_SECONDS)
    assert not server.thread.is_alive()
    assert not server.dialer.gave_up


def test_a_worker_that_drains_does_not_wait_for_ever(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    peer.start(1, "ask", b'"x"')
    peer.turn(1)
    server.dialer.drain(limit_seconds=0.2)
    peer.drain()
    assert ended(peer)
    server.thread.join(DEADLINE_SECONDS)
    assert server.dialer.gave_up


def test_an_idle_worker_that_drains_leaves_at_once(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    assert server.dialer.ready.wait(DEADLINE_SECONDS)
    begun = time.monotonic()
    server.dialer.drain()
    # A call that has crossed the word is served.
    peer.start(1, "add", b"5")
    peer.drain()
    assert peer.turn(1)[-1].type is Type.OUTPUT
    assert ended(peer)
    assert time.monotonic() - begun < 5


def test_a_worker_that_drains_waits_for_the_servers_word(server: Server) -> None:
    peer = server.peer()
    peer.accept()
    assert server.dialer.ready.wait(DEADLINE_SECONDS)
    server.dialer.drain(limit_seconds=0.5)
    assert peer.next().type is Type.DRAIN
    # It never comes.
    begun = time.monotonic()
    assert ended(peer)
    assert time.monotonic() - begun > 0.3
    assert not server.dialer.gave_up


def test_a_server_of_an_older_version_is_not_told(server: Server) -> None:
    newest = server.peer()
    body = b'{"detail":"this server speaks versions 1 to 4: send one of them as `millrace-worker-protocol`"}'
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n" % len(body)
    newest.connection.sendall(head + body)
    peer = server.peer()
    peer.accept()
    assert server.dialer.ready.wait(DEADLINE_SECONDS)
    server.dialer.drain()
    assert ended(peer)


class Nodes:
    """Several nodes and one worker that dials them all."""

    def __init__(self, count: int = 2, concurrency: int | None = None) -> None:
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in self.listeners]
        self.dialer = Dialer([Echo], self.urls, "bank", "key-1", concurrency=concurrency)
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            asyncio.run(self.dialer.run())
        except BaseException as error:
            self.errors.append(error)

    def peer(self, node: int) -> Peer:
        self.listeners[node].settimeout(DEADLINE_SECONDS)
        return Peer(self.listeners[node].accept()[0])

    def __enter__(self) -> Nodes:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.dialer.stop()
        for listener in self.listeners:
            listener.close()
        self.thread.join(DEADLINE_SECONDS)
        assert not self.thread.is_alive()


def forbid(peer: Peer) -> None:
    peer.connection.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")


def test_a_worker_of_several_nodes_serves_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Nodes() as nodes:
        peers = [nodes.peer(0), nodes.peer(1)]
        for peer in peers:
            document = loads(Cursor(peer.accept().payload).bytes())
            assert document["connections"] == 2
        # Each node numbers its streams by itself.
        peers[0].start(1, "ask", b'"x"')
        peers[0].turn(1)
        peers[1].start(1, "add", b"5")
        assert peers[1].turn(1)[-1].payload.endswith(b"5")
        peers[0].answer(1, (1, b"10"))
        peers[0].turn(1)
        peers[0].answer(1, (2, b"20"))
        assert peers[0].turn(1)[-1].payload.endswith(b"30")
    for url in nodes.urls:
        assert f"{url}: the server has registered this worker" in caplog.text


def test_a_worker_of_one_node_says_nothing_of_several(server: Server) -> None:
    document = loads(Cursor(server.peer().accept().payload).bytes())
    assert "connections" not in document


def test_a_node_named_twice_is_dialled_once() -> None:
    dialer = Dialer([Echo], ["http://a:1", "http://b:1/", "http://a:1/"], "bank")
    assert dialer._urls == ["http://a:1", "http://b:1"]
    with pytest.raises(ValueError, match="needs the URL of a node"):
        Dialer([Echo], [], "bank")


def test_a_lost_node_is_dialled_again_and_the_other_is_served_meanwhile() -> None:
    with Nodes() as nodes:
        lost, other = nodes.peer(0), nodes.peer(1)
        lost.accept()
        other.accept()
        other.start(1, "ask", b'"x"')
        other.turn(1)
        lost.connection.close()
        nodes.peer(0).accept()
        other.answer(1, (1, b"10"))
        assert other.turn(1)[-1].type is Type.SUSPEND


def test_a_node_that_refuses_is_asked_again_while_another_serves(caplog: pytest.LogCaptureFixture) -> None:
    with Nodes() as nodes:
        other = nodes.peer(1)
        other.accept()
        forbid(nodes.peer(0))
        other.start(1, "add", b"5")
        assert other.turn(1)[-1].type is Type.OUTPUT
        nodes.peer(0).accept()
        assert not nodes.errors
    assert f"{nodes.urls[0]}: the server refuses the worker: no" in caplog.text


def test_a_worker_that_all_nodes_refuse_ends() -> None:
    with Nodes() as nodes:
        forbid(nodes.peer(0))
        forbid(nodes.peer(1))
        nodes.thread.join(DEADLINE_SECONDS)
        assert isinstance(nodes.errors[0], Refused)


def test_a_worker_of_several_nodes_drains_as_one() -> None:
    with Nodes(3) as nodes:
        busy, idle = nodes.peer(0), nodes.peer(1)
        away = nodes.peer(2)  # It never answers, and nobody waits for it.
        for peer in (busy, idle):
            peer.accept()
        busy.start(1, "ask", b'"x"')
        busy.turn(1)
        nodes.dialer.drain()
        for peer in (busy, idle):
            peer.drain()
        # What the call waits for may be on a shard of the other node.
        idle.start(1, "add", b"5")
        assert idle.turn(1)[-1].type is Type.OUTPUT
        busy.answer(1, (1, b"10"))
        busy.turn(1)
        busy.answer(1, (2, b"20"))
        assert busy.turn(1)[-1].payload.endswith(b"30")
        assert ended(busy)
        assert ended(idle)
        nodes.thread.join(DEADLINE_SECONDS / 2)
        assert not nodes.thread.is_alive()
        assert not nodes.dialer.gave_up
        away.connection.close()


@contextmanager
def program(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Peer]]:
    """`python -m millrace.connect` with the echo service, dialled in and accepted."""
    (folder / "echo_service.py").write_text(SERVICE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "millrace.connect", str(folder / "echo_service.py"), "--url", url]
        process = subprocess.Popen(command)
        try:
            peer = Peer(listener.accept()[0])
            peer.accept()
            yield process, peer
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_finishes_its_calls_when_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    with program(tmp_path) as (process, peer):
        peer.start(1, "slow")
        time.sleep(0.2)
        process.send_signal(number)
        peer.drain()
        assert peer.turn(1)[-1].payload.endswith(b"1")
        assert ended(peer)
        assert process.wait(DEADLINE_SECONDS) == 0


def test_the_program_leaves_while_a_plain_handler_blocks(tmp_path: Path) -> None:
    with program(tmp_path) as (process, peer):
        peer.start(1, "blocks")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        peer.drain()
        peer.send(Type.CANCEL, payloads.pack_failure(Failure("cancelled", "enough")), 0, 1)
        assert ended(peer)
        assert process.wait(DEADLINE_SECONDS) == 0


def test_the_program_dials_each_url(tmp_path: Path) -> None:
    (tmp_path / "echo_service.py").write_text(SERVICE)
    command = [sys.executable, "-m", "millrace.connect", str(tmp_path / "echo_service.py")]
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for listener in listeners:
        listener.settimeout(DEADLINE_SECONDS)
        command += ["--url", f"http://127.0.0.1:{listener.getsockname()[1]}"]
    process = subprocess.Popen(command)
    try:
        peers = [Peer(listener.accept()[0]) for listener in listeners]
        for peer in peers:
            peer.accept()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        for peer in peers:
            peer.drain()
        assert all(ended(peer) for peer in peers)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        for listener in listeners:
            listener.close()


SERVICE = """
import asyncio
import time
from millrace import Service

class Echo(Service):
    async def add(self, n: int) -> int:
        return n + 1

    async def broken(self) -> None:
        raise ValueError("no such luck")

    async def slow(self) -> int:
        await asyncio.sleep(1)
        return 1

    def blocks(self) -> None:
        time.sleep(60)
"""


def test_dev_tells_of_calls_and_starts_anew_when_a_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "echo_service.py"
    file.write_text(SERVICE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "millrace.dev", str(file), "--url", url]
        with open(tmp_path / "out", "wb") as out:
            # Whoever runs the tests in the background may ignore the signal, and a child inherits that.
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
        try:
            peer = Peer(listener.accept()[0])
            assert b"millrace-app: echo_service" in peer.head
            peer.accept()
            for stream, handler, input in ((1, "add", b"1"), (2, "broken", b"null")):
                peer.start(stream, handler, input)
                peer.turn(stream)
            file.write_text(SERVICE.replace("n + 1", "n + 100"))
            peer = Peer(listener.accept()[0])
            peer.accept()
            peer.start(1, "add", b"1")
            assert peer.turn(1)[-1].payload.endswith(b"101")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_SECONDS)
    told = (tmp_path / "out").read_text()
    assert "ms  echo/k/add  ok" in told
    assert "echo/k/broken  function-failed: ValueError: no such luck (echo_service.py:11)" in told
    assert "a file has changed" in told


def test_the_worker_of_dev_does_not_outlive_it(tmp_path: Path) -> None:
    file = tmp_path / "echo_service.py"
    file.write_text(SERVICE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen([sys.executable, "-m", "millrace.dev", str(file), "--url", url])
        try:
            peer = Peer(listener.accept()[0])
            peer.accept()
        finally:
            process.kill()
            process.wait()
        assert ended(peer)
