"""A worker that keeps no promise: each of its handlers answers in another wrong way, named by the handler."""

from __future__ import annotations

import json
import random
import re
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from millrace._protocol.frames import CONTENT_TYPE, Type, encode

MIB = 1024 * 1024
#: What one answer sends if it has no end of its own: far more than a server may keep.
OFFERED_BYTES = 512 * MIB
#: The deadline of each handler.
TIMEOUT_MS = 1_000
_HOLDS_SECONDS = 15.0


def _sized(length: int, type: str = CONTENT_TYPE) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {type}\r\ncontent-length: {length}\r\n\r\n".encode()


def _reply(body: bytes, type: str = CONTENT_TYPE) -> Iterator[bytes]:
    yield _sized(len(body), type) + body


def _chunked(one: bytes) -> Iterator[bytes]:
    """The same chunk, without end."""
    yield f"HTTP/1.1 200 OK\r\ncontent-type: {CONTENT_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    chunk = f"{len(one):x}\r\n".encode() + one + b"\r\n"
    for _ in range(OFFERED_BYTES // len(chunk)):
        yield chunk


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _huge_body() -> Iterator[bytes]:
    yield _sized(OFFERED_BYTES)
    for _ in range(OFFERED_BYTES // MIB):
        yield bytes(MIB)


def _hoard() -> Iterator[bytes]:
    """As much as an answer may have, and not its end."""
    yield _sized(64 * MIB)
    for _ in range(60):
        yield bytes(MIB)
    yield from _silence()


def _endless_headers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    line = b"x-header: " + b"y" * 1000 + b"\r\n"
    for _ in range(OFFERED_BYTES // len(line)):
        yield line


def _drip() -> Iterator[bytes]:
    """One byte at a time: the connection is never silent, and the answer never there."""
    yield _sized(1_000)
    end = time.monotonic() + _HOLDS_SECONDS
    while time.monotonic() < end:
        time.sleep(0.05)
        yield b"\0"


def _silence() -> Iterator[bytes]:
    time.sleep(_HOLDS_SECONDS)
    yield b""


_LOG = encode(Type.LOG, b"\x01" + _text(b"x" * 1000))
_SET = encode(Type.SET, _text(b"field") + b"\x00" + _text(b'"' + b"x" * (MIB // 2) + b'"'))
_OUTPUT = encode(Type.OUTPUT, b"\x00" + _text(b'"good"'))
_GARBAGE = random.Random(1).randbytes(100_000)

#: Those of which no end comes.
ENDLESS = ("drip", "silence", "hoard")
#: Those that a slow machine may not have refused by the deadline.
LARGE = ("huge_body", "huge_turn", "flood", "headers")
ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "garbage": lambda: _reply(_GARBAGE),
    "empty": lambda: _reply(b""),
    "cut": lambda: _reply(_OUTPUT[:-3]),
    "twice": lambda: _reply(_OUTPUT + _OUTPUT),
    "page": lambda: _reply(b"<html>hello</html>", "text/html"),
    "length": lambda: _reply(b"\xff\xff\xff\xff" + _OUTPUT[4:]),
    "waits": lambda: _reply(encode(Type.SUSPEND, (1).to_bytes(4, "big") + (7).to_bytes(4, "big"))),
    "no_http": lambda: iter([b"\0" * 1000]),
    "redirect": lambda: iter([b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"]),
    "closes": lambda: iter([]),
    "huge_body": _huge_body,
    "huge_turn": lambda: _chunked(_SET),
    "flood": lambda: _chunked(_LOG * 1000),
    "headers": _endless_headers,
    "drip": _drip,
    "silence": _silence,
    "hoard": _hoard,
}


def document(service: str = "hostile", mode: str = "request-reply", timeout_ms: int = TIMEOUT_MS) -> dict[str, Any]:
    handlers = [{"name": name, "kind": "transaction", "timeout_ms": timeout_ms} for name in [*ANSWERS, "good"]]
    return {
        "protocol": {"min": 1, "max": 3},
        "mode": mode,
        "sdk": "hostile/1",
        "services": [{"name": service, "fields": [], "handlers": handlers, "routes": [], "schedules": []}],
    }


def _said(discovery: Any) -> Iterator[bytes]:
    return _reply(json.dumps(discovery).encode(), "application/json")


#: What is answered to GET /discovery, by name.
DISCOVERIES: dict[str, Callable[[], Iterator[bytes]]] = {
    "garbage": lambda: _reply(_GARBAGE, "application/json"),
    "deep": lambda: _reply(b"[" * 200_000, "application/json"),
    "types": lambda: _reply(b'{"protocol":[],"services":{"a":1}}', "application/json"),
    "names": lambda: _said({**document(), "services": [{"name": "../x" * 5000, "handlers": []}]}),
    "many": lambda: _said(
        {**document(), "services": [{"name": f"s{n}", "fields": [], "handlers": []} for n in range(100_000)]}
    ),
    "versions": lambda: _said({**document(), "protocol": {"min": 900, "max": 901}}),
    "huge_body": _huge_body,
    "headers": _endless_headers,
    "closes": lambda: iter([]),
}


class _Handler(socketserver.StreamRequestHandler):
    server: HostileWorker

    def handle(self) -> None:
        try:
            while self._answer():
                pass
        except (OSError, ValueError):
            pass

    def _answer(self) -> bool:
        """One request; whether the connection goes on."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline(65_536)
            if not line:
                return False
            head += line
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        body = self.rfile.read(int(length[1]) if length else 0)
        if head.startswith(b"GET"):
            answer, goes_on = self.server.discovery(), False
        else:
            name = next((name for name in ANSWERS if _text(name.encode()) in body[:200]), "good")
            goes_on = name == "good"
            answer = _reply(_OUTPUT) if goes_on else ANSWERS[name]()
        for part in answer:
            self.wfile.write(part)
        return goes_on


class HostileWorker(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, discovery: Callable[[], Iterator[bytes]] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.discovery = discovery or (lambda: _said(document()))
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @classmethod
    def of(cls, service: str, timeout_ms: int) -> HostileWorker:
        return cls(lambda: _said(document(service, timeout_ms=timeout_ms)))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The server hangs up on most of what is sent here."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
