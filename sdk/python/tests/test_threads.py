"""Plain ``def`` handlers: how many threads they get, and what comes when there are no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_server import FakeServer, ServerError
from test_asgi import HEADERS, ask, body_of

from millrace import Service, asgi
from millrace._types import loads
from millrace._worker.threads import HandlerThreads, NoThread
from millrace._worker.worker import Worker

RUNNING: list[str] = []
MOST: list[int] = []


class Counter(Service):
    count: int = 0

    def add(self, n: int) -> int:
        self.count += n
        return self.count

    def down(self, levels: int) -> int:
        if levels == 0:
            RUNNING.append(self.key)
            MOST.append(len(RUNNING))
            time.sleep(0.002)
            RUNNING.remove(self.key)
            return 1
        return 1 + self.ctx.result(self.ctx.call(Counter(f"{self.key}.{levels}").down, levels - 1))

    def looks_for_nothing(self) -> Any:
        return next(iter([]))


def run(make: Callable[[], Coroutine[Any, Any, Any]], seconds: float = 10.0) -> Any:
    return asyncio.run(asyncio.wait_for(make(), seconds))


def test_handlers_that_wait_leave_threads_for_those_they_wait_for() -> None:
    server = FakeServer(Worker([Counter], threads=2))

    async def many() -> list[int]:
        return list(await asyncio.gather(*[server.call("counter", f"k{i}", "down", 3) for i in range(60)]))

    MOST.clear()
    assert run(many) == [4] * 60
    assert max(MOST) <= 2


def test_a_plain_handler_that_raises_stop_iteration_fails() -> None:
    server = FakeServer(Worker([Counter]))
    with pytest.raises(ServerError, match="StopIteration"):
        run(lambda: server.call("counter", "k", "looks_for_nothing"))


def test_where_no_thread_is_left_the_server_is_told_to_come_again() -> None:
    app = asgi(Counter)
    app._worker._threads = HandlerThreads(1, limit=1)
    app._worker._threads.taken = 1
    status, answer = ask(app, body=body_of(), headers=HEADERS)
    assert (status, loads(answer)["code"]) == (503, "worker-unavailable")


def test_threads_come_back_and_calls_given_up_do_not_run() -> None:
    threads = HandlerThreads(1, limit=2)
    ran: list[str] = []

    async def steps() -> None:
        loop = asyncio.get_running_loop()
        first = asyncio.create_task(threads.run(loop, lambda: time.sleep(0.1)))
        second = asyncio.create_task(threads.run(loop, lambda: ran.append("second")))
        await asyncio.sleep(0.01)
        with pytest.raises(NoThread):
            await threads.run(loop, lambda: ran.append("third"))
        second.cancel()
        await first
        await asyncio.sleep(0.05)
        await threads.run(loop, lambda: ran.append("fourth"))

    run(steps)
    assert ran == ["fourth"]


def test_a_system_that_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = HandlerThreads(1)

    async def steps() -> None:
        def refuse(*_: Any) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr("threading.Thread.start", refuse)
            with pytest.raises(NoThread, match="can't start"):
                await threads.run(asyncio.get_running_loop(), lambda: 1)
        assert await threads.run(asyncio.get_running_loop(), lambda: 2) == 2

    run(steps)
