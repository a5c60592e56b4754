"""A worker: services, the attempts that run, and those that are suspended."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

from .._protocol import payloads
from .._protocol.frames import OLDEST_VERSION, VERSION, Frame, ProtocolError, Type, decode_all, encode
from .._protocol.payloads import Failure, Fields, Kind, Result, Start
from .._types import dumps
from .._version import __version__
from ..handlers import Handler
from ..service import Definition, Service
from .attempt import Attempt
from .discovery import describe
from .replay import Trails
from .threads import HandlerThreads

log = logging.getLogger("millrace")

Input = Result | Fields

THREADS = 40
# Suspended handlers that are kept in memory. One that is dropped costs another run of its code.
KEPT_ATTEMPTS = 1_000
_SWEEP_SECONDS = 1.0


class Worker:
    """Runs the handlers of some services. It belongs to one event loop."""

    def __init__(
        self,
        services: Sequence[type[Service]],
        threads: int = THREADS,
        kept_attempts: int = KEPT_ATTEMPTS,
        concurrency: int | None = None,
    ) -> None:
        if not services:
            raise TypeError("a worker needs a service at least")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"a concurrency of {concurrency} would let nothing run")
        self._concurrency = concurrency
        self._definitions: dict[str, Definition] = {}
        for service in services:
            definition = service._define()
            if definition.name in self._definitions:
                raise TypeError(f"two services are named {definition.name!r}: give one of them a name=")
            self._definitions[definition.name] = definition
        self._threads = HandlerThreads(threads)
        self._kept: OrderedDict[bytes, tuple[Attempt, int]] = OrderedDict()
        self._kept_attempts = kept_attempts
        self._deadlines: dict[Attempt, float] = {}
        self._sweeping = False
        self._trails = Trails()
        #: Told of each handler that has ended, and the seconds it took.
        self.on_end: Callable[[Attempt, float], None] | None = None

    def discovery(self, mode: str, connections: int = 1) -> bytes:
        """The discovery document. With several connections, each is to have its part of what runs at once."""
        own = {} if self._concurrency is None else {"concurrency": self._concurrency}
        if connections > 1:
            own["connections"] = connections
        return dumps(
            {
                **own,
                "protocol": {"min": OLDEST_VERSION, "max": VERSION},
                "mode": mode,
                "sdk": f"millrace-python/{__version__}",
                "services": [describe(definition) for definition in self._definitions.values()],
            }
        )

    @property
    def threads_taken(self) -> int:
        """How many threads run a plain handler, or wait for one."""
        return self._threads.taken

    def close(self) -> None:
        for attempt in list(self._deadlines):
            attempt.cancel()
        self._kept.clear()
        self._deadlines.clear()
        self._threads.close()

    # -- request and reply ------------------------------------------------------------------------

    async def invoke(self, body: bytes, attempt_header: str, version: int = VERSION) -> bytes:
        """One request's body; gives the reply's: one turn. Raises ``NoThread`` where it cannot run now."""
        start, inputs = read_request(body)
        if attempt_header != start.attempt.hex():
            raise ProtocolError("the header millrace-attempt names another attempt")
        attempt, fed = self._kept.pop(start.attempt, (None, 0))
        if attempt is not None and (attempt.cancelled or attempt.reported != start.seen or fed > len(inputs)):
            # The server has not got the last reply, or the attempt's time is up: run it again.
            self._drop(attempt)
            attempt = None
        if attempt is None:
            opened = self.open(start, version=version)
            if isinstance(opened, bytes):
                return opened
            attempt, fed = opened, 0
            attempt.trail = self._trails.begin(start)
        else:
            attempt.resumed = (attempt.reported, attempt.reported_checksum)
        turn = await attempt.turn(inputs[fed:])
        if attempt.ended:
            self._deadlines.pop(attempt, None)
            if attempt.no_thread is not None:
                raise attempt.no_thread
        else:
            self._keep(attempt, len(inputs))
        if start.seen:
            turn = encode(Type.RESUMED, payloads.encode_resumed(*attempt.resumed)) + turn
        return turn

    def _keep(self, attempt: Attempt, fed: int) -> None:
        self._kept[attempt.start.attempt] = (attempt, fed)
        while len(self._kept) > self._kept_attempts:
            _, (dropped, _) = self._kept.popitem(last=False)
            self._drop(dropped)

    def _drop(self, attempt: Attempt) -> None:
        self._trails.keep(attempt.start, attempt.trail)
        self._deadlines.pop(attempt, None)
        attempt.cancel()

    # -- attempts ---------------------------------------------------------------------------------

    def open(self, start: Start, stream: int = 0, version: int = VERSION) -> Attempt | bytes:
        """A new attempt; or the frames that say why there is none."""
        definition = self._definitions.get(start.service)
        handler = self._find(definition, start)
        if definition is None or handler is None:
            message = f"this worker has no {start.kind.name.lower()} {start.service}/{start.handler}"
            failure = payloads.encode_failure(Failure("unknown-handler", message), "")
            return encode(Type.FAILURE, failure, payloads.TERMINAL, stream)
        loop = asyncio.get_running_loop()
        attempt = Attempt(loop, start, definition, handler, self._threads, stream, version)
        self._deadlines[attempt] = loop.time() + start.deadline_ms / 1000
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)
        return attempt

    @staticmethod
    def _find(definition: Definition | None, start: Start) -> Handler | None:
        if definition is None:
            return None
        table = definition.routes if start.kind is Kind.ROUTE else definition.handlers
        handler = table.get(start.handler)
        return handler if handler is not None and handler.kind is start.kind else None

    def close_attempt(self, attempt: Attempt) -> None:
        """Forgets an attempt; ends it if it has not ended."""
        deadline = self._deadlines.pop(attempt, None)
        if deadline is not None and attempt.ended and self.on_end is not None:
            left = deadline - attempt.loop.time()
            self.on_end(attempt, attempt.start.deadline_ms / 1000 - left)
        if not attempt.ended:
            attempt.cancel()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends attempts whose deadline has passed: the server has given them up."""
        now = loop.time()
        for attempt in [attempt for attempt, deadline in self._deadlines.items() if deadline < now]:
            log.warning("%s ran past its deadline and is ended", told(attempt.start))
            self._kept.pop(attempt.start.attempt, None)
            self._drop(attempt)
        if self._deadlines:
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)
        else:
            self._sweeping = False


def told(start: Start) -> str:
    """What an attempt runs, for the log."""
    if start.kind is Kind.ROUTE:
        return f"{start.service} {start.handler}"
    return f"{start.service}/{start.key.decode(errors='replace')}/{start.handler}"


def read_request(body: bytes) -> tuple[Start, list[Input]]:
    """START and the inputs behind it."""
    frames = decode_all(body)
    if not frames or frames[0].type is not Type.START:
        raise ProtocolError("a request begins with START")
    if any(frame.stream for frame in frames):
        raise ProtocolError("a request carries one attempt, whose stream is 0")
    return payloads.decode_start(frames[0].payload, frames[0].flags), [read_input(frame) for frame in frames[1:]]


def read_input(frame: Frame) -> Input:
    """A frame that an attempt is fed with."""
    if frame.type is Type.RESULT:
        return payloads.decode_result(frame.payload, frame.flags)
    if frame.type is Type.FIELDS:
        return payloads.decode_fields(frame.payload, frame.flags)
    raise ProtocolError(f"{frame.type.name} is not expected here")
