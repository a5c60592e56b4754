"""gunicorn with uvicorn's class of workers: several processes behind one URL, killed and replaced under load."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loads import Hotel, Load, Running, Transfer
from processes import EXAMPLES, SECRET, WorkerProcess, deploy, gunicorn_worker, needs_examples, needs_server

from millrace import Client
from millrace.testing import Node

pytestmark = [needs_server, needs_examples]
PROCESSES = 2
_SECONDS = 120.0


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = gunicorn_worker("app:app", EXAMPLES, PROCESSES, SECRET)
    worker.start()
    try:
        yield worker
        assert worker.stop() == 0
    finally:
        worker.kill()


def processes_of(worker: WorkerProcess) -> set[int]:
    listed = subprocess.run(["pgrep", "-P", str(worker.id)], capture_output=True, text=True, check=False)
    return {int(line) for line in listed.stdout.split()}


def wait_for_others(worker: WorkerProcess, before: set[int]) -> None:
    """Waits until gunicorn has its processes again, and none of these."""
    end = time.monotonic() + _SECONDS
    while len(now := processes_of(worker)) != PROCESSES or now & before:
        assert time.monotonic() < end, (before, now)
        time.sleep(0.05)


def test_audits_are_exact_though_processes_are_killed_and_replaced(
    node: Node, worker: WorkerProcess, tmp_path: Path
) -> None:
    deploy(node, "python", worker.url, tmp_path, secret=SECRET)
    with Client(node.url) as client:
        loads: list[Load] = [Hotel(client, 1), Transfer(client, 2), Transfer(client, 3, "other")]
        for load in loads:
            load.prepare()
        running = Running(loads)
        running.start()
        for _ in range(2):
            running.wait_for_progress(3, _SECONDS)
            killed = min(processes_of(worker))
            os.kill(killed, signal.SIGKILL)
            wait_for_others(worker, {killed})
        # New processes take over, the old ones end what they do: as for a new release of the same handlers.
        running.wait_for_progress(3, _SECONDS)
        before = processes_of(worker)
        os.kill(worker.id, signal.SIGHUP)
        wait_for_others(worker, before)
        running.wait_for_progress(3, _SECONDS)
        running.end()
        for load in loads:
            load.audit()
