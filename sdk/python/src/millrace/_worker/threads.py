"""Threads for plain ``def`` handlers: so many run at once, and those that wait for the server do not count."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# A thread that waits for a call may wait for a handler that needs a thread here as well. So whoever comes gets
# one: of the server's 256 root transactions each nests up to 16 calls.
THREAD_LIMIT = 256 * 16


class NoThread(Exception):
    """All threads are taken, so this call cannot run here now."""


class HandlerThreads:
    """A bounded pool. Threads are made when they are needed, and used again.

    :meth:`run` belongs to the event loop's thread, :meth:`wait` to the threads of the pool.
    """

    def __init__(self, running: int, limit: int = THREAD_LIMIT) -> None:
        self._running = threading.BoundedSemaphore(running)
        self._pool = ThreadPoolExecutor(limit, "millrace-handler")
        self._limit = limit
        self.taken = 0
        self._lock = threading.Lock()

    async def run(self, loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> T:
        """Runs a function in a thread, in the caller's context. Raises :class:`NoThread` if there is none."""
        with self._lock:
            if self.taken >= self._limit:
                raise NoThread(f"all {self._limit} threads of this worker are taken")
            self.taken += 1
        context = contextvars.copy_context()
        is_wanted = True

        def run_counted() -> T:
            with self._running:
                if not is_wanted:
                    raise NoThread("nobody waits for this call any more")
                try:
                    return context.run(function)
                except StopIteration as error:
                    # No future takes it; a coroutine turns it into the same.
                    raise RuntimeError("the handler raised StopIteration") from error

        try:
            future = self._pool.submit(run_counted)
        except RuntimeError as error:
            # The system starts no thread. The pool has queued the function nevertheless.
            is_wanted = False
            self._give_back()
            raise NoThread(str(error)) from None
        future.add_done_callback(self._give_back)
        try:
            return await asyncio.wrap_future(future, loop=loop)
        finally:
            is_wanted = False

    def _give_back(self, _: object = None) -> None:
        with self._lock:
            self.taken -= 1

    def wait(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
        """Blocks the calling thread of this pool until the event loop has run a coroutine."""
        self._running.release()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
        finally:
            self._running.acquire()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
