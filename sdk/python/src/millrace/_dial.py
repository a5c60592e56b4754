"""Workers that dial in: no open port, so they run on a laptop or behind NAT."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
from collections.abc import Sequence

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
_DIVERGED = ("diverged", "not-deterministic")


class Refused(Exception):
    """The server does not want this worker, and will not when it is asked again."""


def connect(
    *services: type[Service],
    url: str,
    app: str,
    key: str | None = None,
    threads: int = THREADS,
    concurrency: int | None = None,
) -> None:
    """Serves services to the node at ``url`` until the process is interrupted or terminated.

    Then it finishes the calls that are under way, for 10 seconds at most.

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
    """A worker that dials in, and again when the connection is lost."""

    def __init__(
        self,
        services: Sequence[type[Service]],
        url: str,
        app: str,
        key: str | None = None,
        threads: int = THREADS,
        concurrency: int | None = None,
    ) -> None:
        self.worker = Worker(services, threads, concurrency=concurrency)
        self._url = url
        self._app = app
        self._key = key if key is not None else os.environ.get(KEY_VARIABLE) or None
        #: Set while the server has registered this worker.
        self.ready = threading.Event()
        self._session: _Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._draining = False
        #: Set if calls were still under way when the time to drain was up.
        self.gave_up = False

    async def run(self) -> None:
        """Serves until :meth:`stop`. Raises :class:`Refused` if the server never wants the worker."""
        pause = _FIRST_PAUSE_SECONDS
        loop = self._loop = asyncio.get_running_loop()
        try:
            while not self._stopped:
                session = self._session = _Session(self.worker, loop, self.ready)
                try:
                    await session.serve(self._url, self._app, self._key)
                    pause = _FIRST_PAUSE_SECONDS
                except LinkError as error:
                    if error.refused:
                        raise Refused(str(error)) from None
                    if self._stopped or self._draining:
                        return
                    if session.was_ready:
                        pause = _FIRST_PAUSE_SECONDS
                    log.warning("%s; trying again in %.1f s", error, pause)
                    # Jittered, so that the workers of a node that restarts do not all come at once.
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        finally:
            self.drop()
            self.worker.close()

    def drain(self, limit_seconds: float = _DRAIN_SECONDS) -> None:
        """Ends :meth:`run` once no call is under way, or after the limit. A second time is :meth:`stop`.

        From any thread. The protocol has no word for it, so calls that come meanwhile are served: those
        that are under way may need them.
        """
        session, loop = self._session, self._loop
        if self._draining or session is None or loop is None or not self.ready.is_set():
            self.stop()
            return
        self._draining = True
        loop.call_soon_threadsafe(self._drain, session, loop, limit_seconds)

    def _drain(self, session: _Session, loop: asyncio.AbstractEventLoop, limit_seconds: float) -> None:
        count = session.under_way()
        if count:
            log.info("finishing %d calls, for %g s at most", count, limit_seconds)
            loop.call_later(limit_seconds, self._give_up, session)
        self._stopped = True
        session.drain()

    def _give_up(self, session: _Session) -> None:
        if not session.left:
            self.gave_up = True
            log.warning("%d calls have not ended: the server makes them again elsewhere", session.under_way())
            session.close()

    def stop(self) -> None:
        """Ends :meth:`run`, from any thread."""
        self._stopped = True
        self.drop()

    def drop(self) -> None:
        """Breaks the connection as a crash would: the server voids what runs here. From any thread."""
        session = self._session
        if session is not None:
            session.close()


class _Session:
    """One connection: its attempts, by stream."""

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
        self._worker = worker
        self._loop = loop
        self._ready = ready
        self._link: Link | None = None
        self._attempts: dict[int, Attempt] = {}
        self._turns: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[LinkError | None] = loop.create_future()
        self._closed = False
        self._draining = False
        #: Set once it drains and nothing is under way any more.
        self.left = False
        self.was_ready = False

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.close()

    def drain(self) -> None:
        """Ends the connection once nothing is under way."""
        self._draining = True
        self._leave_if_idle()

    def under_way(self) -> int:
        """How many attempts a broken connection would make void. A workflow that sleeps loses nothing."""
        return sum(
            attempt.start.kind is not Kind.WORKFLOW or attempt.is_in_a_turn for attempt in self._attempts.values()
        )

    def _leave_if_idle(self) -> None:
        if self._draining and not self.left and self._link is not None and not self.under_way():
            self.left = True
            self._link.finish()

    async def serve(self, url: str, app: str, key: str | None) -> None:
        """Connects and serves until the connection ends."""
        link = await self._loop.run_in_executor(None, open_link, url, app, key, self._on_frames)
        self._link = link
        thread = threading.Thread(target=link.run, args=(self._on_end,), name="millrace-link", daemon=True)
        thread.start()
        if self._closed:
            link.close()
        link.send(encode(Type.HELLO, payloads.pack(self._worker.discovery("stream"))))
        try:
            error = await self._ended
        finally:
            link.close()
            self._ready.clear()
            for attempt in self._attempts.values():
                self._worker.close_attempt(attempt)
            self._attempts.clear()
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
        elif frame.type is Type.READY:
            self.was_ready = True
            self._ready.set()
            log.info("the server has registered this worker")
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
        self._leave_if_idle()

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
        self._leave_if_idle()

    def _send(self, frames: bytes) -> None:
        if self._link is not None and frames:
            self._link.send(frames)
