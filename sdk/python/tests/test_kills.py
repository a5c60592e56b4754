"""Worker and server, killed by turns under the load of three examples. The audits after it are exact.

``MILLRACE_KILLS`` sets how many kills there are; ``make python-kills`` makes 200.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loads import KINDS, Load, Running
from processes import EXAMPLES, WorkerProcess, deploy, dialing_worker, needs_examples, needs_server, uvicorn_worker

from millrace import Client
from millrace.testing import Node

pytestmark = [needs_server, needs_examples]
KILLS = int(os.environ.get("MILLRACE_KILLS", "6"))
SEED = int(os.environ.get("MILLRACE_KILLS_SEED", "1"))
#: What each load has had answered between two kills.
OPERATIONS = 3
_PROGRESS_SECONDS = 240.0


@pytest.fixture(params=["the server dials", "the worker dials"])
def worker(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Iterator[WorkerProcess]:
    if request.param == "the server dials":
        worker = uvicorn_worker("app:app", EXAMPLES)
        worker.start()
        deploy(node, "python", worker.url, tmp_path)
    else:
        worker = dialing_worker("app:services", EXAMPLES, node.url, "python")
        worker.start()
        wait_until_registered(node)
    try:
        yield worker
    finally:
        worker.kill()


def wait_until_registered(node: Node) -> None:
    end = time.monotonic() + _PROGRESS_SECONDS
    with Client(node.url) as client:
        while client.request("GET", "/hotel/audit").status != 200:
            assert time.monotonic() < end, node.log()
            time.sleep(0.05)


def test_audits_are_exact_though_both_sides_are_killed_by_turns(node: Node, worker: WorkerProcess) -> None:
    pauses = random.Random(SEED)
    with Client(node.url) as client:
        loads: list[Load] = [kind(client, SEED) for kind in KINDS]
        for load in loads:
            load.prepare()
        running = Running(loads)
        running.start()
        for kill in range(KILLS):
            running.wait_for_progress(OPERATIONS, _PROGRESS_SECONDS)
            # So that the kill comes at any point of an operation, not just after an answer.
            time.sleep(pauses.uniform(0.0, 0.05))
            if kill % 2:
                node.kill()
                node.start()
            else:
                worker.kill()
                worker.start()
        running.end()
        for load in loads:
            load.audit()
            print(f"{load.name}: {load.operations} operations, sent again after {dict(load.not_final)}")
        assert all(load.operations >= OPERATIONS * KILLS for load in loads)
