"""Threads for plain ``def`` handlers: so many run at once, and those that wait for the server do not count."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# A thread that waits for a call may hold up another thread of the same process that serves this very
# call. So waiting threads make room, up to this many for each one that may run.
_WAITING_FOR_ONE = 8


class HandlerThreads:
    """A bounded pool. Threads are made when the first plain handler is called."""

    def __init__(self, running: int) -> None:
        self._running = threading.BoundedSemaphore(running)
        self._pool = ThreadPoolExecutor(running * _WAITING_FOR_ONE, "millrace-handler")

    def run(self, loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> asyncio.Future[T]:
        """Runs a function in a thread, in the caller's context."""
        context = contextvars.copy_context()
        return loop.run_in_executor(self._pool, lambda: context.run(self._counted, function))

    def _counted(self, function: Callable[[], T]) -> T:
        with self._running:
            return function()

    def wait(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
        """Blocks the calling thread of this pool until the event loop has run a coroutine."""
        self._running.release()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
        finally:
            self._running.acquire()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
