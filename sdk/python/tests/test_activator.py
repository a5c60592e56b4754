"""Workers that are started at the first request, scaled, ended when idle, and killed in the middle of requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from activator import Activator, Scale
from loads import Hotel, Load, Running, Social, Transfer
from processes import EXAMPLES, SECRET, deploy, needs_examples, needs_server, uvicorn_worker

from millrace import Client
from millrace.testing import Node

pytestmark = [needs_server, needs_examples]
SCALE = Scale(killed=0.015)
_SECONDS = 120.0


@pytest.fixture
def activator(node: Node) -> Iterator[Activator]:
    activator = Activator(lambda: uvicorn_worker("app:app", EXAMPLES, SECRET), SCALE)
    activator.start()
    try:
        yield activator
    finally:
        activator.close()


def wait_until_none(activator: Activator) -> None:
    end = time.monotonic() + _SECONDS
    while activator.workers:
        assert time.monotonic() < end, activator.seen
        time.sleep(0.02)


def test_audits_are_exact_though_workers_come_and_go(node: Node, activator: Activator, tmp_path: Path) -> None:
    # The deployment's own request starts the first worker.
    deploy(node, "python", activator.url, tmp_path, secret=SECRET)
    with Client(node.url) as client:
        loads: list[Load] = [Hotel(client, 1), Social(client, 2), Transfer(client, 3)]
        loads += [Social(client, 4, "other-"), Transfer(client, 5, "other-")]
        for load in loads:
            load.prepare()
        for _ in range(2):
            running = Running(loads)
            running.start()
            running.wait_for_progress(4, _SECONDS)
            running.end()
            for load in loads:
                load.settle()
            wait_until_none(activator)
            asked = activator.seen["requests"]
            # Nothing that the server does by itself may wake a worker.
            time.sleep(3 * SCALE.idle_seconds)
            assert (activator.workers, activator.seen["requests"]) == (0, asked)
        for load in loads:
            load.audit()
    print(dict(activator.seen))
    assert activator.seen["most"] > 1
    assert activator.seen["idle"] > 1
    assert activator.seen["killed"] > 0


def test_a_first_call_waits_for_its_worker(node: Node, activator: Activator, tmp_path: Path) -> None:
    deploy(node, "python", activator.url, tmp_path, secret=SECRET)
    wait_until_none(activator)
    starts = activator.seen["starts"]
    with Client(node.url, retries=5) as client:
        assert client.call("transfer_account", "ann", "open", 100) == 100
    assert activator.seen["starts"] > starts
