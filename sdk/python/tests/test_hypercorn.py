"""hypercorn serves a worker over HTTP/2 without TLS; the server knows it by the scheme ``h2c``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loads import Hotel, Load, Running, Transfer
from processes import (
    EXAMPLES,
    SECRET,
    WorkerProcess,
    connections_to,
    deploy,
    hypercorn_worker,
    needs_examples,
    needs_server,
)

from millrace import Client
from millrace.testing import Node

pytestmark = [needs_server, needs_examples]
_SECONDS = 120.0
_HERE = Path(__file__).parent


@pytest.fixture(params=["stream", "request-reply"])
def worker(request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    streams = request.param == "stream"
    worker = hypercorn_worker("app:app" if streams else "request_reply:app", EXAMPLES if streams else _HERE, SECRET)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def test_audits_are_exact_over_http2_though_the_worker_is_killed(
    node: Node, worker: WorkerProcess, tmp_path: Path
) -> None:
    assert worker.url.startswith("h2c://")
    deploy(node, "python", worker.url, tmp_path, secret=SECRET)
    with Client(node.url) as client:
        loads: list[Load] = [Hotel(client, 1), Transfer(client, 2), Transfer(client, 3, "other")]
        for load in loads:
            load.prepare()
        running = Running(loads)
        running.start()
        for _ in range(2):
            running.wait_for_progress(3, _SECONDS)
            worker.kill()
            worker.start()
        running.wait_for_progress(3, _SECONDS)
        # One for each core of the node that has called it, and one that is about to close.
        assert 1 <= connections_to(worker) <= (os.cpu_count() or 1) + 1
        running.end()
        for load in loads:
            load.audit()


def test_a_connection_is_given_up_before_hypercorn_ends_it(node: Node, worker: WorkerProcess, tmp_path: Path) -> None:
    deploy(node, "python", worker.url, tmp_path, secret=SECRET)
    longest_seconds = 0.0
    with Client(node.url) as client:
        # hypercorn ends a connection after 1,000 requests, and forgets those that are under way.
        for _ in range(1_200):
            began = time.monotonic()
            assert client.request("POST", "/call/single/one/req").status == 200
            longest_seconds = max(longest_seconds, time.monotonic() - began)
    assert longest_seconds < 5
