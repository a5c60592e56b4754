"""The ASGI application: who may call it, and what it refuses."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import time
from typing import Any

import pytest
import uvicorn

from millrace import Service, asgi
from millrace._protocol import payloads
from millrace._protocol.frames import Frame, Reader, Type, decode_all, encode
from millrace._protocol.payloads import Kind, Start, Value
from millrace._protocol.signature import NO_ATTEMPT, signed_text
from millrace._types import loads

ATTEMPT = b"a" * 16
SECRET = b"sixteen letters."


class Counter(Service):
    count: int = 0

    async def add(self, n: int) -> int:
        self.count += n
        return self.count


def body_of(**changes: Any) -> bytes:
    start = Start(ATTEMPT, Kind.TRANSACTION, 1000, 0, "counter", "add", b"k", "", 1, b"s" * 16, b"5")
    payload, flags = payloads.encode_start(start._replace(**changes))
    return encode(Type.START, payload, flags)


def ask(
    app: Any,
    method: str = "POST",
    path: str = "/invoke",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    client: str | None = "127.0.0.1",
    chunks: int = 1,
    version: str = "1.1",
) -> tuple[int, bytes]:
    scope = {
        "type": "http",
        "http_version": version,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": None if client is None else (client, 5000),
    }
    size = -(-len(body) // chunks) if body else 1
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    answer: dict[str, Any] = {}

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        answer.update(message)

    asyncio.run(app(scope, receive, send))
    return answer["status"], answer["body"]


HEADERS = {"millrace-worker-protocol": "1", "millrace-attempt": ATTEMPT.hex()}


def test_a_call_over_http() -> None:
    status, answer = ask(asgi(Counter), body=body_of(fields=((b"count", Value(0, b"2")),)), headers=HEADERS, chunks=3)
    assert status == 200
    frames = decode_all(answer)
    assert [frame.type for frame in frames] == [Type.SET, Type.OUTPUT]
    assert frames[1].payload == b"\0\0\0\0\x017"


def test_discovery() -> None:
    status, answer = ask(asgi(Counter), "GET", "/worker/discovery")
    document = loads(answer)
    assert (status, document["mode"], document["protocol"]) == (200, "request-reply", {"min": 1, "max": 5})
    assert document["services"][0]["fields"] == ["count"]


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"headers": {**HEADERS, "millrace-worker-protocol": "6"}}, 400, "versions 1 to 5"),
        ({"headers": {"millrace-attempt": ATTEMPT.hex()}}, 400, "versions 1 to 5"),
        ({"headers": {**HEADERS, "millrace-attempt": "b" * 32}}, 400, "another attempt"),
        ({"body": b"x" * 20}, 400, "must be zero|unknown type|longer than"),
        ({"body": encode(Type.PING, b"")}, 400, "begins with START"),
        ({"body": body_of() + encode(Type.PING, b"")}, 400, "PING is not expected"),
        ({"body": body_of()[:-1]}, 400, "cut off"),
        ({"body": b""}, 400, "begins with START"),
        ({"method": "GET"}, 405, "POST /invoke"),
        ({"path": "/discovery"}, 405, "GET /discovery"),
        ({"path": "/x"}, 404, "Millrace worker"),
        ({"client": "10.1.2.3"}, 401, "only this machine"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], status: int, told: str) -> None:
    import re

    answer = ask(asgi(Counter), **{"body": body_of(), "headers": HEADERS, **changes})
    assert answer[0] == status
    assert re.search(told, loads(answer[1])["detail"])


@pytest.mark.parametrize("client", ["127.0.0.1", "127.9.9.9", "::1", None])
def test_this_machine_may_call_without_a_secret(client: str | None) -> None:
    assert ask(asgi(Counter), body=body_of(), headers=HEADERS, client=client)[0] == 200


@pytest.mark.parametrize(
    "changes", [{"service": "nobody"}, {"handler": "nothing"}, {"kind": Kind.QUERY}, {"kind": Kind.ROUTE}]
)
def test_an_unknown_handler_is_a_failure(changes: dict[str, Any]) -> None:
    status, answer = ask(asgi(Counter), body=body_of(**changes), headers=HEADERS)
    frame = decode_all(answer)[0]
    assert (status, frame.type, frame.flags) == (200, Type.FAILURE, 1)
    assert b"this worker has no" in frame.payload


def sign(secret: bytes, *signed: Any) -> str:
    return "v1=" + hmac.new(secret, signed_text(*signed), hashlib.sha256).hexdigest()


def signed(body: bytes, method: str = "POST", path: str = "/invoke", ahead: int = 60, secret: bytes = SECRET) -> Any:
    attempt = ATTEMPT.hex() if method == "POST" else NO_ATTEMPT
    expires = str(int(time.time()) + ahead)
    signature = sign(secret, method, path, expires, attempt, body)
    headers = {"millrace-expires": expires, "millrace-attempt": attempt, "millrace-signature": signature}
    return {**HEADERS, **headers}


def test_signed_requests_come_from_anywhere() -> None:
    app = asgi(Counter, secret=SECRET)
    assert ask(app, body=body_of(), headers=signed(body_of()), client="10.1.2.3")[0] == 200
    headers = signed(b"", "GET", "/discovery")
    assert ask(app, "GET", "/discovery", headers=headers, client="10.1.2.3")[0] == 200


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (HEADERS, "no signature"),
        (signed(body_of(), secret=b"other"), "does not fit"),
        (signed(body_of() + b"x"), "does not fit"),
        (signed(body_of(), path="/other"), "does not fit"),
        (signed(body_of(), ahead=-5), "expired"),
        ({**signed(body_of()), "millrace-expires": "99999999999"}, "does not fit"),
        ({**signed(body_of()), "millrace-attempt": "b" * 32}, "does not fit"),
    ],
)
def test_other_signatures_are_refused(headers: dict[str, str], told: str) -> None:
    status, answer = ask(asgi(Counter, secret=SECRET), body=body_of(), headers=headers)
    assert status == 401
    assert told in loads(answer)["detail"]


def test_the_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_WORKER_SECRET", SECRET.decode())
    assert ask(asgi(Counter), body=body_of(), headers=HEADERS)[0] == 401
    assert ask(asgi(Counter), body=body_of(), headers=signed(body_of()))[0] == 200


@pytest.mark.parametrize("secret", ["", "abc", "fifteen letters", b"fifteen letters"])
def test_a_secret_that_can_be_guessed_is_refused(secret: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="16 bytes or more"):
        asgi(Counter, secret=secret)
    monkeypatch.setenv("MILLRACE_WORKER_SECRET", "fifteen letters")
    with pytest.raises(ValueError, match="16 bytes or more"):
        asgi(Counter)


@pytest.mark.parametrize("protocol", ["h11", "httptools"])
def test_replies_do_not_wait_for_the_servers_acknowledgement(protocol: str) -> None:
    # As under `uvicorn --workers 2`: the socket's protocol number is 0, so asyncio leaves Nagle's algorithm on.
    app, delayed = asgi(Counter), []

    async def looked_at(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http":
            connection = send.__self__.transport.get_extra_info("socket")
            delayed.append(not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async def steps() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            config = uvicorn.Config(looked_at, http=protocol, loop="asyncio", log_level="error")  # type: ignore[arg-type]
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            writer.write(b"GET /discovery HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            server.should_exit = True
            await serving

    asyncio.run(asyncio.wait_for(steps(), 20))
    assert delayed == [False]


class Talker(Service):
    async def asks(self) -> int:
        return await Counter("other").add(1) + await Counter("other").add(2)

    async def never(self) -> None:
        await asyncio.sleep(60)


class Duplex:
    """The server's end of a stream: it sends while the application answers."""

    def __init__(self, app: Any, start: bytes, headers: dict[str, str], version: str = "2") -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._frames: list[Frame] = []
        self._reader = Reader()
        scope = {
            "type": "http",
            "http_version": version,
            "method": "POST",
            "path": "/invoke",
            "raw_path": b"/invoke",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 5000),
        }
        self.send(start[:20])
        self.send(start[20:])
        self.task = asyncio.ensure_future(app(scope, self._messages.get, self._answers.put))

    def send(self, data: bytes, more: bool = True) -> None:
        self._messages.put_nowait({"type": "http.request", "body": data, "more_body": more})

    def hang_up(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._answers.get(), 5)

    async def next(self) -> Frame:
        while not self._frames:
            self._frames = self._reader.feed((await self.answer())["body"])
        return self._frames.pop(0)


STREAM = {**HEADERS, "millrace-worker-protocol": "3", "millrace-worker-mode": "stream"}


def result(operation: int, json: bytes) -> bytes:
    return encode(Type.RESULT, payloads.encode_result(payloads.Result(operation, Value(0, json))))


def test_a_stream_is_answered_while_it_is_sent_and_ends_after_the_server_has() -> None:
    async def talk() -> None:
        stream = Duplex(asgi(Counter, Talker), body_of(service="talker", handler="asks", input=b"null"), STREAM)
        assert (await stream.answer())["status"] == 200
        for number, output in ((1, b"10"), (2, b"20")):
            assert [(await stream.next()).type, (await stream.next()).type] == [Type.CALL, Type.SUSPEND]
            stream.send(encode(Type.PING, b""))
            assert (await stream.next()).type is Type.HEARTBEAT
            stream.send(result(number, output))
        output_frame = await stream.next()
        assert (output_frame.type, output_frame.payload[-2:]) == (Type.OUTPUT, b"30")
        await asyncio.sleep(0.05)
        assert not stream.task.done(), "it ends its side second"
        stream.send(b"", more=False)
        assert (await stream.answer())["more_body"] is False
        await stream.task

    asyncio.run(talk())


@pytest.mark.parametrize("how", ["hangs up", "cancels", "ends its side", "sends nonsense"])
def test_a_server_that_ends_early_ends_the_handler(how: str) -> None:
    async def talk() -> None:
        stream = Duplex(asgi(Talker), body_of(service="talker", handler="never", input=b"null"), STREAM)
        assert (await stream.answer())["status"] == 200
        assert (await stream.next()).type is Type.HEARTBEAT
        if how == "hangs up":
            stream.hang_up()
        elif how == "cancels":
            stream.send(encode(Type.CANCEL, payloads.pack_failure(payloads.Failure("cancelled", "over"))))
        elif how == "ends its side":
            stream.send(b"", more=False)
        else:
            stream.send(b"\xff" * 12)
        await asyncio.wait_for(stream.task, 5)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"version": "1.1"}, 400, "needs HTTP/2"),
        ({"start": encode(Type.PING, b"") + body_of()}, 400, "begins with START"),
        ({"headers": {**STREAM, "millrace-attempt": "b" * 32}}, 400, "another attempt"),
        ({"headers": {**STREAM, "millrace-worker-protocol": "6"}}, 400, "versions 1 to 5"),
        ({"app": asgi(Counter, secret=SECRET)}, 401, "no signature"),
    ],
)
def test_what_is_refused_on_a_stream(changes: dict[str, Any], status: int, told: str) -> None:
    async def talk() -> None:
        stream = Duplex(**{"app": asgi(Counter), "start": body_of(), "headers": STREAM, **changes})
        assert (await stream.answer())["status"] == status
        assert told in loads((await stream.answer())["body"])["detail"]

    asyncio.run(talk())


def test_on_a_stream_start_alone_is_signed() -> None:
    start = body_of()
    expires = str(int(time.time()) + 60)
    signature = sign(SECRET, "POST", "/invoke", expires, ATTEMPT.hex(), start)
    headers = {**STREAM, "millrace-expires": expires, "millrace-signature": signature}

    async def talk() -> None:
        stream = Duplex(asgi(Counter, secret=SECRET), start + encode(Type.PING, b""), headers)
        assert (await stream.answer())["status"] == 200

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("version", "offer", "stream", "mode"),
    [
        ("2", {"millrace-worker-mode": "stream"}, True, "stream"),
        ("2", {"millrace-worker-mode": "stream"}, False, "request-reply"),
        ("2", {}, True, "request-reply"),
        ("1.1", {"millrace-worker-mode": "stream"}, True, "request-reply"),
    ],
)
def test_the_mode_is_that_of_the_connection_and_of_what_the_server_offers(
    version: str, offer: dict[str, str], stream: bool, mode: str
) -> None:
    status, answer = ask(asgi(Counter, stream=stream), "GET", "/discovery", headers=offer, version=version)
    assert (status, loads(answer)["mode"]) == (200, mode)
