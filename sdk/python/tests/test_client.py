"""Both clients against a server of scripted answers: keys, retries, errors, types."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from millrace import Abort, AsyncClient, CallError, Client, Service, Unreachable, query
from millrace.client import core


class Account(Service):
    async def deposit(self, amount: int) -> int:
        return amount

    async def transfer(self, to: str, amount: int) -> None: ...

    @query
    async def show(self) -> int:
        return 0


class Script:
    """What the server answers next, and what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], Any]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.script.asked.append((self.command, self.path, headers, body))
        status, headers, answer = self.script.answers.pop(0)
        if status == 0:
            self.close_connection = True  # The connection breaks before the answer.
            return
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if headers.get("transfer-encoding") == "chunked":
            self.end_headers()
            half = len(data) // 2
            for part in (data[:half], data[half:], b""):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            return
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    handler = type("Scripted", (Handler,), {"script": script})
    # So that no connection of a burst is tried again a second later.
    ThreadingHTTPServer.request_queue_size = 64
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield script
    server.shutdown()
    server.server_close()


class Sync:
    """Runs a test's steps on the blocking client."""

    kind = Client

    @staticmethod
    def run(steps: Any, url: str, **options: Any) -> Any:
        with Client(url, **options) as client:
            return asyncio.run(steps(client))


class Async:
    kind = AsyncClient

    @staticmethod
    def run(steps: Any, url: str, **options: Any) -> Any:
        async def go() -> Any:
            async with AsyncClient(url, **options) as client:
                return await steps(client)

        return asyncio.run(go())


async def got(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@pytest.fixture(params=[Sync, Async])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(core, "_FIRST_PAUSE_SECONDS", 0.001)
    return request.param


def test_a_typed_call(driver: Any, script: Any) -> None:
    script.answers = [(200, {}, 5)]

    async def steps(client: Any) -> Any:
        return await got(client.call(Account("a/ä").deposit, 5))

    assert driver.run(steps, script.url, app="bank", key="secret") == 5
    method, path, headers, body = script.asked[0]
    assert (method, path, body) == ("POST", "/apps/bank/call/account/a%2F%C3%A4/deposit", b"5")
    assert headers["authorization"] == "Bearer secret"
    assert len(headers["idempotency-key"]) == 36


def test_a_call_is_sent_again_under_the_same_key(driver: Any, script: Any) -> None:
    script.answers = [(0, {}, 0), (503, {}, {}), (503, {"retry-after": "0"}, {}), (200, {}, None)]

    async def steps(client: Any) -> Any:
        return await got(client.call(Account("a").transfer, "b", amount=3))

    assert driver.run(steps, script.url) is None
    assert len(script.asked) == 4
    assert len({headers["idempotency-key"] for _, _, headers, _ in script.asked}) == 1
    assert script.asked[0][3] == b'{"to":"b","amount":3}'


def test_it_gives_up_after_so_many_tries(driver: Any, script: Any) -> None:
    script.answers = [(0, {}, 0)] * 3 + [(503, {}, {"code": "overloaded", "detail": "too much"})] * 3

    async def steps(client: Any) -> Any:
        return await got(client.call("account", "a", "deposit", 1))

    with pytest.raises(Unreachable):
        driver.run(steps, script.url, retries=2)
    with pytest.raises(CallError, match="overloaded: too much") as caught:
        driver.run(steps, script.url, retries=2)
    assert caught.value.status == 503


def test_a_refusal_is_an_abort_and_is_not_tried_again(driver: Any, script: Any) -> None:
    script.answers = [(409, {}, {"code": "aborted", "detail": "insufficient funds", "payload": {"balance": 3}})]

    async def steps(client: Any) -> Any:
        return await got(client.call(Account("a").deposit, 1))

    with pytest.raises(Abort) as caught:
        driver.run(steps, script.url)
    assert (caught.value.message, caught.value.payload) == ("insufficient funds", {"balance": 3})


def test_what_is_no_problem_document_is_still_an_error(driver: Any, script: Any) -> None:
    script.answers = [(500, {}, b"<html>")]

    async def steps(client: Any) -> Any:
        return await got(client.call("a", "b", "c"))

    with pytest.raises(CallError, match="http: status 500"):
        driver.run(steps, script.url)


def test_a_key_of_ones_own(driver: Any, script: Any) -> None:
    script.answers = [(200, {}, 1)]

    async def steps(client: Any) -> Any:
        return await got(client.with_options(idempotency_key="mine").call(Account("a").deposit, 1))

    driver.run(steps, script.url)
    assert script.asked[0][2]["idempotency-key"] == "mine"


def test_sent_calls_and_workflows(driver: Any, script: Any) -> None:
    script.answers = [
        (202, {}, {"id": "inv_1"}),
        (200, {}, {"id": "inv_1", "status": "running"}),
        (200, {"transfer-encoding": "chunked"}, {"id": "inv_1", "status": "succeeded", "output": [1]}),
        (200, {}, {"id": "inv_1", "status": "failed", "error": {"code": "aborted", "detail": "no", "status": 409}}),
        (202, {}, b""),
        (202, {}, b""),
        (200, {}, {"invocations": []}),
        (202, {}, {"id": "order 1"}),
    ]

    async def steps(client: Any) -> Any:
        invocation = await got(client.send_after(1.5, Account("a").deposit, 5))
        assert await got(invocation.result(timeout=5)) == [1]
        with pytest.raises(Abort, match="no"):
            await got(client.invocation("inv_1").result())
        await got(invocation.signal("confirmed", {"by": "ann"}))
        await got(invocation.cancel())
        await got(client.invocations(service="trip", status="running"))
        assert (await got(client.send_as("order 1", Account("a").deposit, 5))).id == "order 1"

    driver.run(steps, script.url)
    paths = [path for _, path, _, _ in script.asked]
    assert paths[0] == "/send/account/a/deposit?delay_ms=1500"
    assert paths[1].startswith("/invocations/inv_1?wait_ms=")
    assert paths[4:] == [
        "/invocations/inv_1/signal",
        "/invocations/inv_1/cancel",
        "/invocations?service=trip&status=running",
        "/send/account/a/deposit?id=order+1",
    ]
    assert script.asked[4][3] == b'{"name":"confirmed","payload":{"by":"ann"}}'


def test_a_result_that_does_not_come(driver: Any, script: Any) -> None:
    script.answers = [(200, {}, {"id": "i", "status": "running"})]

    async def steps(client: Any) -> Any:
        await got(client.invocation("i").result(timeout=0))

    with pytest.raises(TimeoutError):
        driver.run(steps, script.url)


def test_state_and_routes(driver: Any, script: Any) -> None:
    script.answers = [
        (200, {}, {"balance": 5}),
        (200, {"content-type": "application/octet-stream"}, b"\0\1"),
        (404, {}, {"error": "x"}),
    ]

    async def steps(client: Any) -> Any:
        assert await got(client.state(Account("a"))) == {"balance": 5}
        assert await got(client.state("account", "a", field="photo")) == b"\0\1"
        reply = await got(client.request("POST", "/bank/open", json={"id": 1}))
        assert (reply.status, reply.json(), reply.ok) == (404, {"error": "x"}, False)

    driver.run(steps, script.url)
    assert script.asked[1][1] == "/state/account/a/photo"
    assert script.asked[2][2]["content-type"] == "application/json"


def test_many_calls_at_once_share_connections(driver: Any, script: Any) -> None:
    script.answers = [(200, {}, 1)] * 40

    async def steps(client: Any) -> Any:
        if isinstance(client, Client):
            threads = [threading.Thread(target=client.call, args=("a", "b", "c")) for _ in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            await asyncio.gather(*[client.call("a", "b", "c") for _ in range(40)])

    driver.run(steps, script.url)
    assert not script.answers


def test_wrong_arguments_are_told_before_anything_is_sent(driver: Any, script: Any) -> None:
    async def steps(client: Any) -> Any:
        for arguments in ((Account("a").deposit, "x"), (Account("a").deposit,), (print,), ("a", "b", "c", 1, 2)):
            with pytest.raises(TypeError):
                await got(client.call(*arguments))

    driver.run(steps, script.url)
    assert not script.asked
