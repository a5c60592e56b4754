"""The worker in plain Node.js, driven by the same server as the Python engine."""

from __future__ import annotations

import asyncio
import http.client
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, ServerError

from millrace._protocol.frames import Type, encode
from millrace._types import loads

FOLDER = Path(__file__).parents[2] / "node"
pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not FOLDER.exists(), reason="there is no Node.js, or no worker for it"
)


# The newest version of the protocol that it speaks.
NEWEST = 3


class HttpWorker:
    """What a fake server calls, over HTTP."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._kept: dict[str, Any] = {}

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    def discovery(self, mode: str) -> bytes:
        return self.ask("GET", "/discovery", b"", {})[1]

    async def invoke(self, body: bytes, attempt: str, version: int = 2) -> bytes:
        headers = {"millrace-worker-protocol": str(min(version, NEWEST)), "millrace-attempt": attempt}
        status, answer = self.ask("POST", "/invoke", body, headers)
        assert status == 200, answer
        return answer


@pytest.fixture(scope="module")
def worker() -> Iterator[HttpWorker]:
    process = subprocess.Popen(["node", str(FOLDER / "bank.mjs"), "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    yield HttpWorker(int(line.rsplit(":", 1)[1]))
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(params=[False, True], ids=["all at once", "one by one"])
def server(worker: HttpWorker, request: pytest.FixtureRequest) -> FakeServer:
    return FakeServer(worker, one_by_one=request.param)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_calls(server: FakeServer) -> None:
    assert run(server.call("account", "ann", "deposit", 100)) == 100
    run(server.call("account", "ann", "transfer", {"to": "bob", "amount": 30}))
    assert run(server.call("account", "ann", "show")) == 70
    assert run(server.call("account", "bob", "fields")) == [["balance", 30]]
    assert run(server.call("account", "ann", "both", ["x", "y", "x"])) == [1, 1, 2]
    with pytest.raises(ServerError, match="insufficient funds") as caught:
        run(server.call("account", "ann", "transfer", {"to": "bob", "amount": 71}))
    assert (caught.value.code, caught.value.detail) == ("aborted", {"balance": 70})
    with pytest.raises(ServerError, match="no such luck"):
        run(server.call("account", "ann", "broken"))


def test_workflows_and_routes(server: FakeServer) -> None:
    assert run(server.call("trip", "t", "book", "ann")) == "token of ann"
    assert server.logs == [(1, "booked ann")]
    # The names of millrace.d.ts, as the server has them.
    step = next(frame for frame in server.frames if frame.type is Type.STEP)
    assert step.payload.endswith(b'{"attempts":3,"first_ms":5}')
    assert server.compensations == [("account", b"ann", "deposit", b"80")]
    assert run(server.request("POST", "/account/deposit/a%20b", {"amount": 5})) == (200, 5)
    assert run(server.request("GET", "/account/text")) == (418, b"hi")


@pytest.mark.parametrize(
    "body", [b"", b"x" * 20, encode(Type.PING, b""), encode(Type.START, b"x"), encode(Type.START, b"", 0, 1)]
)
def test_wrong_frames_are_refused(worker: HttpWorker, body: bytes) -> None:
    status, answer = worker.ask("POST", "/invoke", body, {"millrace-worker-protocol": "1"})
    assert (status, loads(answer)["code"]) == (400, "worker-protocol")


def test_other_versions_are_refused(worker: HttpWorker) -> None:
    assert worker.ask("POST", "/invoke", b"", {"millrace-worker-protocol": "3"})[0] == 400


def test_an_input_that_is_not_json_is_the_callers_fault(server: FakeServer) -> None:
    with pytest.raises(ServerError) as caught:
        run(server._run("account", b"ann", "deposit", b"{"))
    assert caught.value.code == "invalid-input"
