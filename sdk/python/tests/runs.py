"""What tests of workers on streams share: calls, and what their handlers note outside."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from millrace import Client
from millrace.testing import Node

_SECONDS = 60.0


class Runs:
    """What handlers have noted outside."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, name: str) -> int:
        return self._path.read_text().split().count(name) if self._path.exists() else 0

    def block(self, does: bool) -> None:
        """Whether the handler ``blocks`` does what its name says."""
        flag = Path(f"{self._path}.blocks")
        flag.touch() if does else flag.unlink()

    def until(self, name: str, count: int) -> None:
        end = time.monotonic() + _SECONDS
        while self.of(name) < count:
            assert time.monotonic() < end, f"{name} ran {self.of(name)} times"
            time.sleep(0.01)


def post(client: Client, path: str, body: Any) -> Any:
    reply = client.request("POST", path, json=body)
    assert reply.status == 200, (path, reply.status, reply.body)
    return reply.json()


def slow_call(node: Node, seconds: float) -> tuple[threading.Thread, list[Any]]:
    """Begins a call that takes a while, and where its answer will be."""
    answers: list[Any] = []

    def call() -> None:
        with Client(node.url) as client:
            answers.append(post(client, "/call/account/a/slow", {"seconds": seconds, "then": 5}))

    thread = threading.Thread(target=call)
    thread.start()
    return thread, answers
