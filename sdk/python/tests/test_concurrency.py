"""How many calls run at once is said by the worker, and kept by the server."""

from __future__ import annotations

import json
from typing import Any

import pytest

import millrace
from millrace import Service
from millrace._dial import Dialer
from millrace._worker.worker import Worker


def document(worker: Worker) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(worker.discovery("stream"))
    return said


def test_a_worker_says_how_many_it_takes() -> None:
    class Narrow(Service, concurrency=1):
        async def go(self) -> None: ...

    class Wide(Service):
        async def go(self) -> None: ...

    said = document(Dialer([Narrow, Wide], "http://127.0.0.1:1", "app", concurrency=8).worker)
    assert said["concurrency"] == 8
    assert [service.get("concurrency") for service in said["services"]] == [1, None]
    assert "concurrency" not in document(Worker([Wide]))


def test_nothing_at_all_is_refused() -> None:
    class Some(Service):
        async def go(self) -> None: ...

    with pytest.raises(ValueError, match="let nothing run"):
        millrace.asgi(Some, concurrency=0)
    with pytest.raises(ValueError, match="let nothing run"):

        class None_(Service, concurrency=0):
            async def go(self) -> None: ...
