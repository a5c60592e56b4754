"""A stand-in for what runs workers on demand, as Knative's activator and autoscaler do, behind one URL.

It starts a worker at the first request and keeps requests until one is ready. It has so many workers as requests are
under way, and none after a while without any. Now and then it kills a worker in the middle of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from processes import WorkerProcess

_START_SECONDS = 60.0
_HEAD_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True)
class Scale:
    """How many workers there are."""

    #: Requests under way for each worker that is wanted.
    target: int = 2
    most: int = 3
    idle_seconds: float = 0.5
    #: How often a request's worker is killed, from 0 to 1.
    killed: float = 0.0


@dataclass
class _Instance:
    worker: WorkerProcess
    under_way: int = 0
    #: Requests that are cut off when the worker ends.
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Activator:
    """Listens at ``url`` in a thread of its own. ``make`` gives a worker that has not been started."""

    def __init__(self, make: Callable[[], WorkerProcess], scale: Scale, seed: int = 1) -> None:
        self._make = make
        self._scale = scale
        self._random = random.Random(seed)
        self._instances: list[_Instance] = []
        # With those that are starting, so that none is left over.
        self._made: list[WorkerProcess] = []
        self._starting = 0
        self._waiting = 0
        self._last_request = 0.0
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self.url = ""
        #: What happened: requests, starts, stops when idle, kills; and the most workers at a time.
        self.seen: Counter[str] = Counter()

    @property
    def workers(self) -> int:
        return len(self._instances) + self._starting

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(_START_SECONDS)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_SECONDS)
        for worker in self._made:
            worker.kill()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._spawn(self._scale_for_ever())
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- how many workers there are ---------------------------------------------------------------

    async def _scale_for_ever(self) -> None:
        while True:
            under_way = self._waiting + sum(instance.under_way for instance in self._instances)
            for _ in range(min(self._scale.most, math.ceil(under_way / self._scale.target)) - self.workers):
                self._starting += 1
                self.seen["starts"] += 1
                self._spawn(self._start_worker())
            self.seen["most"] = max(self.seen["most"], self.workers)
            if not under_way and time.monotonic() - self._last_request > self._scale.idle_seconds:
                for instance in [*self._instances]:
                    self.seen["idle"] += 1
                    await self._end(instance)
            await asyncio.sleep(0.01)

    async def _start_worker(self) -> None:
        worker = self._make()
        self._made.append(worker)
        worker.start()
        host, port = worker.url.removeprefix("http://").split(":")
        while True:
            # Ready is who listens, as the manifests' readiness probe has it.
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                break
            await asyncio.sleep(0.02)
        self._starting -= 1
        self._instances.append(_Instance(worker))
        self._changed.set()

    async def _end(self, instance: _Instance) -> None:
        if instance in self._instances:
            self._instances.remove(instance)
            await asyncio.to_thread(instance.worker.kill)
            instance.ended.set()

    async def _kill_soon(self, instance: _Instance) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 0.01))
        if instance in self._instances:
            self.seen["killed"] += 1
            await self._end(instance)

    async def _instance(self) -> _Instance:
        """The worker with the fewest requests, once there is one."""
        self._waiting += 1
        try:
            while not self._instances:
                self._changed.clear()
                await self._changed.wait()
            return min(self._instances, key=lambda instance: instance.under_way)
        finally:
            self._waiting -= 1

    # -- requests ---------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while (message := await _message(reader)) is not None:
                self.seen["requests"] += 1
                answer = await self._forward(message)
                self._last_request = time.monotonic()
                if answer is None and self._random.random() < 0.5:
                    # The activator itself may lose the connection as well.
                    break
                writer.write(answer or b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        writer.close()

    async def _forward(self, message: bytes) -> bytes | None:
        """The worker's answer; none if the worker ended before."""
        self._last_request = time.monotonic()
        instance = await self._instance()
        instance.under_way += 1
        if self._random.random() < self._scale.killed:
            self._spawn(self._kill_soon(instance))
        exchange = asyncio.ensure_future(_exchange(instance.worker.url, message))
        ended = asyncio.ensure_future(instance.ended.wait())
        try:
            await asyncio.wait([exchange, ended], return_when=asyncio.FIRST_COMPLETED)
            return exchange.result() if exchange.done() else None
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            instance.under_way -= 1
            for task in (exchange, ended):
                task.cancel()


async def _message(reader: asyncio.StreamReader) -> bytes | None:
    """A request or reply with its body; none at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return None
    assert len(head) < _HEAD_LIMIT_BYTES
    lines = [line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if line]
    headers = {name: value.strip() for name, value in lines}
    assert b"transfer-encoding" not in headers, "neither the server nor uvicorn sends chunks here"
    return head + await reader.readexactly(int(headers.get(b"content-length", b"0")))


async def _exchange(url: str, message: bytes) -> bytes | None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(message)
        await writer.drain()
        return await _message(reader)
    finally:
        writer.close()
