"""The real server, with a worker under uvicorn. Skipped where MILLRACE_BINARY names no server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bank import Account, Pair, Trip
from processes import SECRET, WorkerProcess, deploy, needs_server, uvicorn_worker

from millrace import Abort, CallError, Client, MillraceError
from millrace.testing import Node

pytestmark = needs_server


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, WorkerProcess]]:
    node, worker = Node(), uvicorn_worker("bank:app", Path(__file__).parent, SECRET)
    try:
        worker.start()
        node.start()
        settings = f'[retry]\nattempts = 4\nfirst_ms = 5\n[fetch]\nallow = ["{node.url}/state"]\n'
        deploy(node, "bank", worker.url, tmp_path_factory.mktemp("secret"), secret=SECRET, settings=settings)
        yield node, worker
    finally:
        worker.kill()
        node.close()


@pytest.fixture
def client(pair: tuple[Node, WorkerProcess]) -> Iterator[Client]:
    with Client(pair[0].url, retries=30) as client:
        yield client


def test_calls_and_transfers(client: Client) -> None:
    assert client.call(Account("ann").deposit, 100) == 100
    client.call(Account("ann").transfer, "bob", 30)
    assert (client.call(Account("ann").show), client.call(Account("bob").show)) == (70, 30)
    with pytest.raises(Abort, match="insufficient funds") as caught:
        client.call(Account("ann").transfer, "bob", 71)
    assert caught.value.payload == {"balance": 70}
    assert client.request("GET", "/account/both/ann/bob").json() == [70, 30]


def test_a_key_counts_once(client: Client) -> None:
    once = client.with_options(idempotency_key="once")
    assert [once.call(Account("cid").deposit, 5), once.call(Account("cid").deposit, 5)] == [5, 5]


def test_errors_say_what_happened(client: Client) -> None:
    with pytest.raises(CallError) as caught:
        client.call("account", "ann", "deposit", "x")
    assert (caught.value.status, caught.value.code) == (400, "invalid-input")
    assert "amount" in caught.value.message
    with pytest.raises(CallError, match=r"function-failed.*no such luck") as caught:
        client.call(Account("ann").broken)
    assert caught.value.status == 500


def test_plain_handlers_and_collections(client: Client) -> None:
    assert client.call(Account("dan").plain, 5) == 5
    assert client.call(Account("dan").remember, "x", 700) == ["x00000", "x00001"]
    assert client.call(Account("dan").remember, "a", 1) == ["a00000", "x00000"]


def test_what_a_callee_writes_in_the_callers_entity_is_seen(client: Client) -> None:
    assert client.call(Account("self").calls_itself, 100) == 102
    assert client.call(Account("self").show) == 102


def test_a_workflow(client: Client) -> None:
    client.call(Account("eve").deposit, 100)
    trip = client.send(Trip("eve").book, "eve")
    trip.signal("confirmed", "yes")
    assert trip.result(timeout=20) == "token of eve yes"
    assert client.call(Account("eve").show) == 20
    with pytest.raises(Abort, match="insufficient funds"):
        client.send(Trip("eve").book, "eve").result(timeout=20)


@pytest.mark.parametrize(("what", "attempts"), [("step", 2), ("call", 3), ("as the app says", 4)])
def test_what_fails_is_tried_as_often_as_it_is_said(client: Client, what: str, attempts: int) -> None:
    trip = client.send(Trip("eve").stubborn, what)
    end = time.monotonic() + 20
    while (seen := client.request("GET", f"/invocations/{trip.id}").json())["status"] != "paused":
        assert time.monotonic() < end, seen
        time.sleep(0.02)
    assert [failure["attempts"] for failure in seen["failures"]] == [attempts], seen
    client.request("POST", f"/invocations/{trip.id}/kill")


def test_a_worker_fetches_what_its_settings_allow(pair: tuple[Node, WorkerProcess], client: Client) -> None:
    assert client.call(Account("ivy").deposit, 7) == 7
    seen = client.send(Trip("eve").looks_out, f"{pair[0].url}/state/account/ivy/balance").result(timeout=20)
    assert seen == "7"


def test_ids_of_ones_own_and_results(client: Client) -> None:
    for _ in range(2):
        pair = client.send_as("pair-1", Pair("p").open, ["gil", "joy"])
        assert pair.id == "pair-1"
        assert pair.result(timeout=20) == [5, 5, "in vain"]
    assert client.call(Account("gil").show) == 5
    assert client.invocation("pair-1-joy").result() == 5
    with pytest.raises(MillraceError, match="another workflow has the id"):
        client.send_as("pair-1", Pair("p").open, ["gil"])
