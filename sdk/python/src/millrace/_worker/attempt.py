"""One attempt: a handler that runs here while its transaction is held by the server.

The handler is an ordinary asyncio task (or a thread). Each operation it asks for becomes a frame; awaiting
the operation awaits a future that the server's RESULT settles. A *turn* is over when the handler has ended
or can go on with such a result only.

The same inputs give the same frames. So results are fed one at a time, and the next one only when the
attempt has come to rest: asyncio runs what is ready in order, and :data:`_PASSES` of its loop without a new
operation mean that nothing is.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from zlib import crc32

from .._protocol import payloads
from .._protocol.frames import VERSION, Type, encode
from .._protocol.payloads import Failure, Fields, Kind, Outcome, Result, Start, Value
from ..errors import UsageError
from .failures import failure_of, value_of
from .replay import Trail
from .state import State, _Unknown
from .threads import NoThread

if TYPE_CHECKING:
    from ..context import Context
    from ..handlers import Handler
    from ..service import Definition
    from .threads import HandlerThreads

# A hop from task to task is one pass of the loop: gather, TaskGroup and wait_for take two or three.
_PASSES = 4

OPERATION_LIMIT = 10_000

current: contextvars.ContextVar[Attempt] = contextvars.ContextVar("millrace_attempt")


class Attempt:
    """The frames of one handler's run. All methods belong to the thread of the event loop, or to the handler's."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        start: Start,
        definition: Definition,
        handler: Handler,
        threads: HandlerThreads,
        stream: int = 0,
        version: int = VERSION,
    ) -> None:
        self.loop = loop
        self.start = start
        #: The version of the protocol that the server speaks.
        self.version = version
        self.handler = handler
        self.ended = False
        self.cancelled = False
        #: The error that the handler ended with, and its traceback.
        self.failure: tuple[Failure, str] | None = None
        #: Set if the handler did not run because the worker has no thread for it.
        self.no_thread: NoThread | None = None
        # What the server has of this attempt: how many frames, and their checksum.
        self.reported = 0
        self.reported_checksum = 0
        # What RESUMED says: of the frames that the server has, how many came out again, and their checksum.
        self.resumed = (0, 0)
        self.trail: Trail | None = None
        self._threads = threads
        self._stream = stream
        self._context: Context | None = None
        has_fields = start.kind in (Kind.TRANSACTION, Kind.QUERY)
        self._state = State(start, definition.declared_set, start.kind is Kind.QUERY) if has_fields else None
        self._entity = definition.cls.__new__(definition.cls)
        self._entity._set(start.key, self, self._state)
        self._task: asyncio.Future[Any] | None = None
        self._inbox: deque[Result | Fields] = deque()
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._unclaimed: dict[int, Result] = {}
        self._operations = 0
        self._sent = 0
        self._checksum = 0
        self._frames: list[bytes] = []
        self._turn: asyncio.Future[bytes] | None = None
        self._turn_is_due = False
        #: Called when there are frames outside of a turn. A connection then begins one.
        self.on_progress: Callable[[], None] | None = None
        #: Steps whose code runs.
        self.running_steps = 0
        self._quiet_passes = 0
        self._settling = False
        self._outcome: tuple[Any, BaseException | None] | None = None

    @property
    def context(self) -> Context:
        """The handler's ``ctx``, made when it is asked for."""
        if self._context is None:
            from ..context import Context

            self._context = Context(self)
        return self._context

    # -- turns ------------------------------------------------------------------------------------

    async def turn(self, inputs: list[Result | Fields]) -> bytes:
        """Feeds what the server sent; gives the frames of the turn that follows.

        Frames that the server has (``start.seen`` of them) are left out.
        """
        self._inbox.extend(inputs)
        turn: asyncio.Future[bytes] = self.loop.create_future()
        self._turn = turn
        if self.ended:
            self._end_turn()
        elif self._task is None:
            self._begin()
        else:
            self._stir()
        return await turn

    def feed(self, given: Result | Fields) -> bool:
        """Takes one input of a connection; says whether it begins a turn."""
        if self.ended:
            return False
        self._inbox.append(given)
        if self._turn is None and not self._turn_is_due:
            self._turn_is_due = True
            return True
        return False

    @property
    def is_in_a_turn(self) -> bool:
        """Whether the handler can go on: it does not wait for the server."""
        return self._turn is not None or self._turn_is_due

    @property
    def task(self) -> asyncio.Future[Any] | None:
        """The handler's task, once it runs."""
        return self._task

    def cancel(self) -> None:
        """Ends the attempt: nothing of it counts any more."""
        self.ended = self.cancelled = True
        if self._task is not None:
            self._task.cancel()
        for future in self._waiting.values():
            future.cancel()
        self._end_turn()

    def _begin(self) -> None:
        if self.handler.never_waits and (self._state is None or not self._state.missing()):
            self._run_at_once()
            return
        if self._inbox:
            self._stir()
        task = _begun(self._run(), self.loop)
        if not self.ended:
            self._task = task

    def _run_at_once(self) -> None:
        """Runs a handler without an ``await``: it needs no task, which costs more than most such handlers."""
        token = current.set(self)
        try:
            self._call_handler().send(None)
        except StopIteration as end:
            self._outcome = (end.value, None)
        except BaseException as error:  # Whatever it is, the server waits for the turn's end.
            self._outcome = (None, error)
        finally:
            current.reset(token)
        self._finish()

    async def _run(self) -> None:
        current.set(self)
        try:
            if self._state is not None and self._state.missing():
                await self.refresh()
            if self.handler.is_async:
                value = await self._call_handler()
            else:
                value = await self._threads.run(self.loop, self._call_handler)
        except GeneratorExit:
            raise  # Nobody runs this coroutine any more.
        except BaseException as error:
            if self.ended:
                raise
            if isinstance(error, NoThread):
                self.no_thread = error
            self._outcome = (None, error)
        else:
            self._outcome = (value, None)
        if self._waiting:
            # Tasks that the handler has started and not awaited belong to the attempt.
            self._stir()
        elif not self.ended:
            self._finish()

    def _call_handler(self) -> Any:
        if self.start.kind is Kind.ROUTE:
            from ..web import Request

            return self.handler.function(self._entity, Request(self.start.input))
        return self.handler.function(self._entity, *self.handler.signature.load_input(self.start.input))

    def _finish(self) -> None:
        assert self._outcome is not None
        value, error = self._outcome
        try:
            if error is not None:
                raise error
            output = self._output(value)
            self._flush()
            self._emit(Type.OUTPUT, payloads.pack_value(output))
        except BaseException as problem:
            failure, terminal, trace = failure_of(problem)
            self.failure = (failure, trace)
            self._emit(Type.FAILURE, payloads.encode_failure(failure, trace), terminal * payloads.TERMINAL)
        self.ended = True
        self._end_turn()
        # Cycles that only the garbage collector would find; it costs more than all of this turn's frames.
        self._entity._set(self.start.key, None, None)
        self._task = None

    def _output(self, value: Any) -> Value:
        if self.start.kind is Kind.ROUTE:
            from ..web import Response

            return Value(payloads.JSON, (value if isinstance(value, Response) else Response(value)).encode())
        return Value(payloads.JSON, self.handler.signature.dump_output(value))

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            # The handler went on by itself: something else than a result woke it.
            if self.on_progress is not None and self._frames:
                self.on_progress()
            return
        frames = b"".join(self._frames)
        self._frames.clear()
        self.reported, self.reported_checksum = self._sent, self._checksum
        self._turn_is_due = False
        if not turn.done():
            turn.set_result(frames)

    # -- coming to rest ---------------------------------------------------------------------------

    def _stir(self) -> None:
        """Something has happened: look again, some passes of the loop later, whether the turn is over."""
        self._quiet_passes = 0
        if not self._settling:
            self._settling = True
            self.loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._quiet_passes += 1
        if self._quiet_passes < _PASSES:
            self.loop.call_soon(self._settle)
            return
        self._settling = False
        if self.ended:
            return
        while self._inbox:
            if self._deliver(self._inbox.popleft()):
                self._stir()
                return
        if self.running_steps:
            # No turn ends before the code of its steps: the server would hear of their end only at the next turn.
            return
        if self._waiting:
            if self._turn is not None:
                self._emit_suspend()
            self._end_turn()
        elif self._outcome is not None:
            self._finish()

    def _deliver(self, given: Result | Fields) -> bool:
        """Hands a result to who awaits it; says whether somebody did."""
        if isinstance(given, Fields):
            if self._state is not None:
                self._state.apply(given)
            return False
        future = self._waiting.pop(given.operation, None)
        if future is None:
            self._unclaimed[given.operation] = given
            return False
        if not future.done():
            future.set_result(given)
        return True

    def _emit(self, type: Type, payload: bytes, flags: int = 0) -> None:
        frame = encode(type, payload, flags, self._stream)
        self._sent += 1
        self._checksum = crc32(frame, self._checksum)
        if self.trail is not None:
            self.trail.add(type, self._checksum)
        if self._sent > self.start.seen:
            self._frames.append(frame)
        else:
            # The server has this frame; it wants to know only that it came out the same.
            self.resumed = (self._sent, self._checksum)

    def _emit_suspend(self) -> None:
        # Neither counted nor summed: a run over again cannot know where the one before had suspended.
        payload = payloads.encode_suspend(sorted(self._waiting))
        self._frames.append(encode(Type.SUSPEND, payload, 0, self._stream))

    # -- what handlers ask for --------------------------------------------------------------------

    def emit(self, type: Type, payload: bytes) -> None:
        """Sends a frame that has no result."""
        self._check()
        self._emit(type, payload)

    def issue(self, type: Type, make_payload: Callable[[int], bytes], flags: int = 0) -> int:
        """Sends an operation; gives its number."""
        self._check()
        if self._operations >= OPERATION_LIMIT:
            raise UsageError(f"an attempt makes at most {OPERATION_LIMIT} operations")
        if type is Type.CALL or type is Type.GET or type is Type.SCAN:
            self._flush()
        self._operations += 1
        self._emit(type, make_payload(self._operations), flags)
        return self._operations

    async def result(self, number: int) -> Result:
        """Waits for the result of an operation."""
        early = self._unclaimed.pop(number, None)
        if early is not None:
            return early
        self._check()
        future: asyncio.Future[Result] = self.loop.create_future()
        self._waiting[number] = future
        self._stir()
        try:
            return await future
        except asyncio.CancelledError:
            # The handler wants it no more (a timeout, a lost race), so the attempt does not wait for it.
            self._waiting.pop(number, None)
            raise

    async def perform(self, type: Type, make_payload: Callable[[int], bytes], flags: int = 0) -> Outcome:
        """An operation and its outcome."""
        outcome = (await self.result(self.issue(type, make_payload, flags))).outcome
        if self._state is not None and self._state.stale:
            await self.refresh()
        return outcome

    def noted_early(self, number: int) -> Outcome | None:
        """The second result of a step, if this run is one over again and the result came along."""
        for index, given in enumerate(self._inbox):
            if isinstance(given, Result) and given.operation == number:
                del self._inbox[index]
                return given.outcome
        return None

    def needs_version(self, version: int, what: str) -> None:
        """Refuses what the server has no frames for."""
        if self.version < version:
            raise UsageError(
                f"{what} needs version {version} of the worker protocol, and this server speaks {self.version}"
            )

    def _check(self) -> None:
        if self.ended:
            raise UsageError("the call has ended: its entity and ctx belong to it and can no longer be used")

    # -- fields -----------------------------------------------------------------------------------

    def state_of_entity(self) -> State:
        if self._state is None:
            raise UsageError("a workflow or route has no fields: it calls handlers of entities")
        self._check()
        return self._state

    def _flush(self) -> None:
        if self._state is not None:
            self._state.flush(self._emit_set, self._emit_delete)

    def _emit_set(self, name: bytes, value: Value) -> None:
        self._emit(Type.SET, payloads.encode_set(name, value))

    def _emit_delete(self, name: bytes) -> None:
        self._emit(Type.DELETE, payloads.pack(name))

    async def refresh(self) -> None:
        """Asks for declared fields that did not come along."""
        assert self._state is not None
        missing = self._state.missing()
        numbers = [self.issue(Type.GET, _get(name)) for name in missing]
        for name, number in zip(missing, numbers, strict=True):
            self._learn(name, await self.result(number))
        self._state.declared_are_known()

    def _learn(self, name: bytes, result: Result) -> Value | None:
        outcome = value_of(result.outcome)
        value = outcome if result.is_set else None
        self.state_of_entity().learn(name, value)
        return value

    async def get(self, name: bytes) -> Value | None:
        """A field's stored value, asked for if it is not known here."""
        state = self.state_of_entity()
        state.settle()
        known = state.lookup(name)
        if not isinstance(known, _Unknown):
            return known
        return self._learn(name, await self.result(self.issue(Type.GET, _get(name))))

    async def scan(self, prefix: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, Value]]:
        """A page of fields, in the order of their names."""
        state = self.state_of_entity()
        state.settle()
        known = state.scan(prefix, after, limit)
        if known is not None:
            return known
        outcome = await self.perform(Type.SCAN, lambda number: payloads.encode_scan(number, prefix, after, limit))
        return payloads.decode_scan_rows(value_of(outcome).data)


def _begun(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """A task that begins at once where Python can do so; before 3.12 it takes a pass of the loop."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return asyncio.Task(coroutine, loop=loop)


def _get(name: bytes) -> Callable[[int], bytes]:
    return lambda number: payloads.operation(number, name)
