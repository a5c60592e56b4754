"""A worker behind hypercorn over HTTP/2: each attempt has a stream, and its handler runs once."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import SECRET, WorkerProcess, connections_to, deploy, hypercorn_worker, needs_server
from runs import Runs, post, slow_call

from millrace import Client
from millrace.testing import Node

pytestmark = needs_server
_SECONDS = 60.0
_HERE = Path(__file__).parent


@pytest.fixture
def worker(runs: Runs, node: Node, tmp_path: Path) -> Iterator[WorkerProcess]:
    worker = hypercorn_worker("streams:app", _HERE, SECRET)
    worker.start()
    try:
        deploy(node, "streams", worker.url, tmp_path, secret=SECRET)
        yield worker
    finally:
        worker.kill()


def test_a_handler_that_reads_what_it_was_not_given_runs_once(node: Node, worker: WorkerProcess, runs: Runs) -> None:
    with Client(node.url) as client:
        assert post(client, "/call/account/a/write", {"count": 200}) is None
        assert post(client, "/call/account/a/read", None) == [400_000, 10_000, 200]
        assert runs.of("read") == 1
        assert post(client, "/call/account/a/deposit", 100) == 100
        assert post(client, "/call/account/a/transfer", {"to": "b", "amount": 30}) == 70
        assert post(client, "/call/account/b/show", None) == 30
        assert runs.of("transfer") == 1
        refused = client.request("POST", "/call/account/a/transfer", json={"to": "b", "amount": 1_000})
        assert (refused.status, refused.json()["detail"]) == (409, "insufficient funds")


def test_large_results_that_come_in_parts_stall_no_handler(node: Node, worker: WorkerProcess, runs: Runs) -> None:
    keys = [f"k{number}" for number in range(5)]
    with Client(node.url, retries=0) as client:
        for times in range(1, 4):
            got = post(client, "/call/account/a/longs", {"keys": keys, "length": 3_000_000})
            assert got == [3_000_000] * 5
            assert runs.of("longs") == times
            assert post(client, "/call/account/a/show", None) == 0


def test_the_same_worker_serves_requests_where_it_says_so(node: Node, runs: Runs, tmp_path: Path) -> None:
    worker = hypercorn_worker("streams:requests", _HERE, SECRET)
    worker.start()
    try:
        deploy(node, "streams", worker.url, tmp_path, secret=SECRET)
        with Client(node.url) as client:
            post(client, "/call/account/a/write", {"count": 2})
            assert post(client, "/call/account/a/read", None) == [400_000, 10_000, 2]
        assert runs.of("read") > 1, "each request runs it again"
    finally:
        worker.kill()


def test_a_worker_that_computes_for_long_is_heard_and_one_that_is_blocked_is_given_up(
    node: Node, worker: WorkerProcess, runs: Runs
) -> None:
    with Client(node.url, retries=0) as client:
        assert post(client, "/call/account/a/slow", {"seconds": 2.5, "then": 1}) == 1
        assert runs.of("slow") == 1
        runs.block(True)
        # Nothing was sent of the answer, so only the deadline counts.
        assert post(client, "/call/account/a/blocks", {"after": 0.0, "seconds": 2.5}) is None
        assert runs.of("blocks") == 1
        # The answer has begun, and more than a second of silence follows.
        thread = threading.Thread(target=post, args=(client, "/call/account/a/blocks", {"after": 0.5, "seconds": 2.5}))
        thread.start()
        runs.until("blocks", 2)
        time.sleep(0.7)
        runs.block(False)
        thread.join(_SECONDS)
        assert runs.of("blocks") == 3, "the first attempt was void"


def test_a_worker_that_is_killed_in_the_middle_has_done_nothing(node: Node, worker: WorkerProcess, runs: Runs) -> None:
    thread, answers = slow_call(node, 1.5)
    runs.until("slow", 1)
    worker.kill()
    worker.start()
    thread.join(_SECONDS)
    assert answers == [5]
    assert runs.of("slow") == 2


def test_a_worker_that_reads_no_more_is_given_up_and_found_again(node: Node, worker: WorkerProcess, runs: Runs) -> None:
    thread, answers = slow_call(node, 1.0)
    runs.until("slow", 1)
    time.sleep(0.4)  # The answer has begun.
    os.kill(worker.id, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(worker.id, signal.SIGCONT)
    thread.join(_SECONDS)
    assert answers == [5]
    assert runs.of("slow") == 2, "the first attempt was void"


def test_streams_leave_nothing_behind(node: Node, worker: WorkerProcess) -> None:
    with Client(node.url) as client:
        for number in range(300):
            refused = client.request("POST", f"/call/account/{number}/transfer", json={"to": "b", "amount": 1})
            assert refused.status == 409
            post(client, f"/call/account/{number}/deposit", 2)
            post(client, f"/call/account/{number}/transfer", {"to": "b", "amount": 1})
    assert connections_to(worker) > 0
    end = time.monotonic() + _SECONDS
    # The server closes a connection that has had no stream for four seconds.
    while connections_to(worker):
        assert time.monotonic() < end, "a stream is still held"
        time.sleep(0.2)


def test_workflows_go_by_requests_and_need_no_stream(node: Node, worker: WorkerProcess) -> None:
    with Client(node.url) as client:
        sent = client.request("POST", "/send/flow/f/pay", json="w").json()
        assert client.invocation(sent["id"]).result(timeout=_SECONDS) == 3
        assert post(client, "/call/account/w/show", None) == 3


@pytest.fixture
def hostile(runs: Runs, node: Node, tmp_path: Path) -> Iterator[Client]:
    worker = hypercorn_worker("hostile_streams:app", _HERE, SECRET)
    worker.start()
    try:
        deploy(node, "hostile", worker.url, tmp_path, secret=SECRET, settings="[workers]\nconcurrency = 200\n")
        with Client(node.url, retries=0) as client:
            yield client
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("handler", "code", "told", "within_seconds"),
    [
        ("silent", "worker-failed", "says nothing any more", 4.0),
        ("early", "worker-failed", "ended its answer before its turn", 4.0),
        ("void", "worker-failed", "broke the protocol", 4.0),
        # Its time is over where the machine is slow.
        ("flood", "worker-failed|worker-timeout", "broke the protocol|not ended within", 20.0),
        ("refused", "worker-failed", "status 418", 4.0),
        ("deaf", "worker-timeout", "not ended within", 4.0),
    ],
)
def test_a_worker_that_keeps_no_promise_is_told_of(
    hostile: Client, handler: str, code: str, told: str, within_seconds: float
) -> None:
    began = time.monotonic()
    reply = hostile.request("POST", f"/call/hostile/h/{handler}").json()
    assert re.fullmatch(code, reply["code"])
    assert re.search(told, reply["detail"])
    assert time.monotonic() - began < within_seconds


def test_a_stream_needs_a_url_of_http2(node: Node) -> None:
    worker = hypercorn_worker("hostile_streams:app", _HERE, SECRET)
    worker.start()
    end = time.monotonic() + _SECONDS
    try:
        with Client(node.url) as client:
            body = {"worker": worker.url.replace("h2c:", "http:"), "secret": SECRET}
            while "does not say" in (said := client.request("PUT", "/apps/hostile", json=body).body.decode()):
                assert time.monotonic() < end, said
                time.sleep(0.05)
        assert "app-refused" in said
        assert "h2c or https" in said
    finally:
        worker.kill()


def test_answers_that_are_never_ended_hold_nothing_up(hostile: Client) -> None:
    began = time.monotonic()
    for number in range(250):
        assert hostile.request("POST", f"/call/hostile/{number}/unended").json() == 7
    assert time.monotonic() - began < 20, "more than fit on one connection, and none waits for another's end"
