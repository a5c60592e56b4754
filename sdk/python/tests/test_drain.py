"""Workers that are told to end under a real server. Skipped without MILLRACE_BINARY."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import WorkerProcess, dialing_worker, needs_server

from millrace import Client
from millrace.testing import Node

pytestmark = needs_server

SERVICES = """
import asyncio
import os
import pathlib
import millrace

class Slow(millrace.Service):
    count: int = 0

    async def add(self, n: int) -> int:
        # Each run of an attempt, also of one that is void.
        with open("runs", "a") as runs:
            runs.write(f"{os.getpid()}\\n")
        self.count += n
        return self.count

    async def through(self, folder: str) -> int:
        pathlib.Path(folder, "begun").touch()
        while not pathlib.Path(folder, "go").exists():
            await asyncio.sleep(0.01)
        return await Slow("other").add(1)

services = [Slow]
"""


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "slow_services.py").write_text(SERVICES)
    node = Node(tmp_path / "data")
    node.start()
    yield node
    node.stop()


def serving(node: Node, folder: Path) -> WorkerProcess:
    worker = dialing_worker("slow_services:services", folder, node.url, "slow")
    worker.start()
    return worker


def status_of(client: Client, path: str, body: bytes = b"1") -> int:
    return client.request("POST", path, body=body).status


def test_what_is_under_way_ends_and_nothing_begins(node: Node, tmp_path: Path) -> None:
    worker = serving(node, tmp_path)
    with Client(node.url) as client, Client(node.url) as other:
        until(lambda: status_of(client, "/call/slow/a/add") == 200)
        statuses: list[int] = []
        folder = f'"{tmp_path}"'.encode()
        call = threading.Thread(target=lambda: statuses.append(status_of(other, "/call/slow/b/through", folder)))
        call.start()
        until((tmp_path / "begun").exists)
        os.kill(worker.id, signal.SIGTERM)
        # From outside nothing begins, long before the worker is gone.
        until(lambda: status_of(client, "/call/slow/a/add") == 503)
        (tmp_path / "go").touch()
        call.join()
        # It has called back into the worker that was told to end.
        assert statuses == [200]
        assert worker.wait(30) == 0


def test_no_call_notices_that_workers_come_and_go(node: Node, tmp_path: Path) -> None:
    workers = [serving(node, tmp_path), serving(node, tmp_path)]
    statuses: list[int] = []
    is_over = threading.Event()

    def call() -> None:
        with Client(node.url) as client:
            while not is_over.is_set():
                statuses.append(status_of(client, f"/call/slow/{len(statuses) % 7}/add"))

    def runs() -> list[int]:
        return [int(line) for line in (tmp_path / "runs").read_text().splitlines()]

    with Client(node.url) as client:
        until(lambda: status_of(client, "/call/slow/a/add") == 200)
    begun = len(runs())
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        until(lambda: {worker.id for worker in workers} <= set(runs()))
        assert workers.pop(0).stop() == 0
        workers.append(serving(node, tmp_path))
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}
    # No attempt was lost: each call has run once.
    assert len(runs()) - begun == len(statuses)
    for worker in workers:
        worker.kill()
