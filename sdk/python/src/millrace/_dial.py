"""Workers that dial in: no open port, so they run on a laptop or behind NAT."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

from ._protocol import payloads
from ._protocol.frames import Frame, ProtocolError, Type, encode
from ._protocol.payloads import Failure, Kind
from ._worker.attempt import Attempt
from ._worker.link import Link, LinkError, open_link
from ._worker.replay import place_of_task
from ._worker.worker import THREADS, Worker, read_input, told
from .service import Service

log = logging.getLogger("millrace")

KEY_VARIABLE = "MILLRACE_KEY"
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# A handler's usual deadline. A supervisor that kills commonly waits for longer.
_DRAIN_SECONDS = 10.0
# The first version of the protocol with DRAIN.
_DRAIN_VERSION = 5
_DIVERGED = ("diverged", "not-deterministic")


class Refused(Exception):
    """The server does not want this worker, and will not when it is asked again."""


def connect(
    *services: type[Service],
    url: str | Sequence[str],
    app: str,
    key: str | None = None,
    threads: int = THREADS,
    concurrency: int | None = None,
) -> None:
    """Serves services to the nodes at ``url`` until the process is interrupted or terminated.

    Then it finishes the calls that are under way, for 10 seconds at most.

    :param url: one URL, or those of all nodes: a worker serves only the nodes that it is connected to.
    :param app: the name of the app that the services are.
    :param key: an API key with the role ``worker``; that of the environment variable ``MILLRACE_KEY`` if it
        is left out.
    :param threads: how many plain ``def`` handlers run at once.
    :param concurrency: how many calls from outside run at once: 256 if it is left out. The server has the others wait.
    """
    try:
        asyncio.run(run_until_told(Dialer(services, url, app, key, threads, concurrency)))
    except KeyboardInterrupt:
        pass


async def run_until_told(dialer: Dialer) -> None:
    """Serves until SIGINT or SIGTERM, and then until no call is under way. A second signal ends it at once."""
    loop = asyncio.get_running_loop()
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, dialer.drain)
    except (ValueError, RuntimeError, NotImplementedError):
        pass  # Signals are for the main thread, and not on every system.
    await dialer.run()


class Dialer:
    """A worker that dials in to one node or several, and again wherever the connection is lost."""

    def __init__(
        self,
        services: Sequence[type[Service]],
        url: str | Sequence[str],
        app: str,
        key: str | None = None,
        threads: int = THREADS,
        concurrency: int | None = None,
    ) -> None:
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("a worker that dials in needs the URL of a node")
        self.worker = Worker(services, threads, concurrency=concurrency)
        # A node named twice is one node. So a list may be put together from several places.
        self._urls = list(dict.fromkeys(one.rstrip("/") for one in urls))
        self._app = app
        self._key = key if key is not None else os.environ.get(KEY_VARIABLE) or None
        #: Set while a server has registered this worker.
        self.ready = threading.Event()
        self._registered: set[str] = set()
        self._refusals: dict[str, Refused] = {}
        self._sessions: dict[str, _Session] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._draining = False
        #: Set if calls were still under way when the time to drain was up.
        self.gave_up = False

    async def run(self) -> None:
        """Serves until :meth:`stop`. Raises :class:`Refused` if no server ever wants the worker."""
        loop = self._loop = asyncio.get_running_loop()
        self._tasks = {url: loop.create_task(self._keep(url)) for url in self._urls}
        try:
            left = set(self._tasks.values())
            while left:
                ended, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    if not task.cancelled():
                        task.result()
        finally:
            self.drop()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self.worker.close()

    async def _keep(self, url: str) -> None:
        """Keeps a connection to one node."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopped:
            session = self._sessions[url] = _Session(self, url)
            try:
                await session.serve(self._app, self._key, len(self._urls))
                pause = _FIRST_PAUSE_SECONDS
            except LinkError as error:
                if self._stopped or self._draining:
                    return
                if session.was_ready:
                    pause = _FIRST_PAUSE_SECONDS
                if error.refused:
                    self._refuse(url, Refused(_named(url, error)))
                    pause = _LONGEST_PAUSE_SECONDS
                log.warning("%s; trying again in %.1f s", _named(url, error), pause)
                # Jittered, so that the workers of a node that restarts do not all come at once.
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _refuse(self, url: str, refused: Refused) -> None:
        """One node does not want the worker. If all say so, it ends; else that node is dialled again."""
        self._refusals[url] = refused
        if len(self._refusals) == len(self._urls):
            raise refused

    def registered(self, url: str, is_registered: bool) -> None:
        """A server has registered this worker, or the connection to it has ended."""
        if is_registered:
            self._registered.add(url)
            self._refusals.pop(url, None)
            self.ready.set()
            log.info("%s: the server has registered this worker", _name(url))
        else:
            self._registered.discard(url)
            if not self._registered:
                self.ready.clear()

    def drain(self, limit_seconds: float = _DRAIN_SECONDS) -> None:
        """Ends :meth:`run` once no call is under way, or after the limit. A second time is :meth:`stop`.

        From any thread. The servers are told, and begin nothing more from outside. What comes meanwhile is
        served: calls that are under way may need it.
        """
        loop = self._loop
        if self._draining or loop is None or not self.ready.is_set():
            self.stop()
            return
        self._draining = True
        loop.call_soon_threadsafe(self._drain, loop, limit_seconds)

    def _drain(self, loop: asyncio.AbstractEventLoop, limit_seconds: float) -> None:
        if count := self._under_way():
            log.info("finishing %d calls, for %g s at most", count, limit_seconds)
        loop.call_later(limit_seconds, self._give_up)
        self._stopped = True
        self._end_unregistered()
        for session in self._sessions.values():
            session.drain()
        self.leave_if_idle()

    def leave_if_idle(self) -> None:
        """Ends all connections of a worker that drains, once nothing is under way on any.

        Not one by one: a call may need what runs on a shard of another node.
        """
        if not (self._draining and self._stopped) or self._under_way():
            return
        if all(session.is_drained for session in self._sessions.values()):
            for session in self._sessions.values():
                session.leave()

    def _under_way(self) -> int:
        return sum(session.under_way() for session in self._sessions.values())

    def _give_up(self) -> None:
        if count := self._under_way():
            self.gave_up = True
            log.warning("%d calls have not ended: the server makes them again elsewhere", count)
        self.drop()

    def _end_unregistered(self) -> None:
        """Waits no longer for nodes that cannot be reached."""
        for url, task in self._tasks.items():
            if url not in self._registered:
                task.cancel()

    def stop(self) -> None:
        """Ends :meth:`run`, from any thread."""
        self._stopped = True
        self.drop()
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._end_unregistered)
            except RuntimeError:
                pass  # The loop is closed: it has ended.

    def drop(self) -> None:
        """Breaks the connections as a crash would: the server voids what runs here. From any thread."""
        for session in list(self._sessions.values()):
            session.close()


def _name(url: str) -> str:
    """A node for the log: its URL without a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _named(url: str, error: LinkError) -> str:
    return str(error) if url in str(error) else f"{_name(url)}: {error}"


class _Session:
    """One connection: its attempts, by stream."""

    def __init__(self, dialer: Dialer, url: str) -> None:
        self._dialer = dialer
        self._worker = dialer.worker
        self._url = url
        self._loop = loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._attempts: dict[int, Attempt] = {}
        self._turns: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[LinkError | None] = loop.create_future()
        self._closed = False
        self.was_ready = False
        #: The server begins nothing more here, or is not there.
        self.is_drained = True

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.close()

    def leave(self) -> None:
        """Ends the connection once all frames have left."""
        if self._link is not None:
            self._link.finish()

    def drain(self) -> None:
        """Tells the server that this worker is about to stop, if it knows the word."""
        if self._link is not None and self.was_ready and self._link.version >= _DRAIN_VERSION:
            self.is_drained = False
            self._send(encode(Type.DRAIN, b""))

    def under_way(self) -> int:
        """How many attempts a broken connection would make void. A workflow that sleeps loses nothing."""
        return sum(
            attempt.start.kind is not Kind.WORKFLOW or attempt.is_in_a_turn for attempt in self._attempts.values()
        )

    def _open(self, app: str, key: str | None) -> asyncio.Future[Link]:
        """Connects in a thread of its own, for which no one waits who ends: a lost node may not answer for long."""
        opened: asyncio.Future[Link] = self._loop.create_future()

        def settle(result: Link | BaseException) -> None:
            if isinstance(result, Link):
                if opened.done():
                    result.abandon()
                else:
                    opened.set_result(result)
            elif not opened.done():
                opened.set_exception(result)

        def run() -> None:
            try:
                result: Link | BaseException = open_link(self._url, app, key, self._on_frames)
            except BaseException as problem:
                result = problem
            self._post(settle, result)

        threading.Thread(target=run, name="millrace-dial", daemon=True).start()
        return opened

    async def serve(self, app: str, key: str | None, connections: int) -> None:
        """Connects and serves until the connection ends."""
        link = self._link = await self._open(app, key)
        thread = threading.Thread(target=link.run, args=(self._on_end,), name="millrace-link", daemon=True)
        thread.start()
        if self._closed:
            link.close()
        link.send(encode(Type.HELLO, payloads.pack(self._worker.discovery("stream", connections))))
        try:
            error = await self._ended
        finally:
            link.close()
            self._dialer.registered(self._url, False)
            for attempt in self._attempts.values():
                self._worker.close_attempt(attempt)
            self._attempts.clear()
            self.is_drained = True
            self._dialer.leave_if_idle()
        if error is not None:
            raise error

    # -- in the link's thread ---------------------------------------------------------------------

    def _on_frames(self, frames: list[Frame]) -> None:
        self._post(self._take_frames, frames)

    def _on_end(self, error: LinkError | None) -> None:
        self._post(self._end, error)

    def _post(self, function: object, argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]
        except RuntimeError:
            pass  # The loop is closed: the process ends.

    # -- in the loop ------------------------------------------------------------------------------

    def _end(self, error: LinkError | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    def _take_frames(self, frames: list[Frame]) -> None:
        try:
            for frame in frames:
                self._take(frame)
        except ProtocolError as error:
            self._end(LinkError(f"the server breaks the protocol: {error}"))

    def _take(self, frame: Frame) -> None:
        if frame.type is Type.START:
            self._start(frame)
        elif frame.type in (Type.RESULT, Type.FIELDS):
            given = read_input(frame)
            attempt = self._attempts.get(frame.stream)
            # What comes for an attempt that has ended here crossed its end.
            if attempt is not None and attempt.feed(given):
                self._run(attempt, frame.stream)
        elif frame.type is Type.CANCEL:
            self._cancel(frame.stream, payloads.decode_failure(frame.payload))
        elif frame.type is Type.READY and not self.is_drained:
            self.is_drained = True
            self._dialer.leave_if_idle()
        elif frame.type is Type.READY:
            self.was_ready = True
            self._dialer.registered(self._url, True)
        else:
            raise ProtocolError(f"{frame.type.name} is not for a worker")

    def _start(self, frame: Frame) -> None:
        if frame.stream in self._attempts or frame.stream == 0:
            raise ProtocolError(f"the stream {frame.stream} cannot begin an attempt")
        assert self._link is not None
        start = payloads.decode_start(frame.payload, frame.flags)
        opened = self._worker.open(start, frame.stream, self._link.version)
        if isinstance(opened, bytes):
            self._send(opened)
        else:
            attempt, stream = opened, frame.stream
            self._attempts[stream] = attempt
            attempt.on_progress = lambda: self._run(attempt, stream)
            self._run(attempt, stream)

    def _cancel(self, stream: int, failure: Failure) -> None:
        if stream == 0:
            self._end(LinkError(f"the server refuses the worker: {failure.message}", refused=not self.was_ready))
            return
        attempt = self._attempts.pop(stream, None)
        if attempt is None:
            return
        if failure.code in _DIVERGED:
            log.error("%s: %s (%s)", told(attempt.start), failure.message, place_of_task(attempt.task))
        self._worker.close_attempt(attempt)
        self._dialer.leave_if_idle()

    def _run(self, attempt: Attempt, stream: int) -> None:
        turn = self._loop.create_task(self._turn(attempt, stream))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)

    async def _turn(self, attempt: Attempt, stream: int) -> None:
        frames = await attempt.turn([])
        if self._attempts.get(stream) is not attempt:
            return  # Cancelled meanwhile, so the server wants nothing of it.
        if attempt.ended:
            del self._attempts[stream]
            self._worker.close_attempt(attempt)
        self._send(frames)
        self._dialer.leave_if_idle()

    def _send(self, frames: bytes) -> None:
        if self._link is not None and frames:
            self._link.send(frames)
