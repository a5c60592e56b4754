"""``ctx``: what a running handler can do beside reading and writing its fields."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from ._protocol import payloads
from ._protocol.frames import Type
from ._protocol.payloads import Kind, Outcome, Value
from ._types import dumps, loads
from ._worker.attempt import current
from ._worker.failures import value_of
from ._worker.steps import Retry, run_step
from .errors import TypeMismatch, UsageError
from .handlers import Bound
from .objects import ObjectRef, ObjectsRef, check_names
from .records import RecordRef, RecordsRef
from .web import FetchResponse, Headers, encode_request

if TYPE_CHECKING:
    from ._worker.attempt import Attempt

P = ParamSpec("P")
R = TypeVar("R")
Duration = float | datetime.timedelta

_ALL_FIELDS = 10_000
_LEVELS = {"debug": 0, "info": 1, "warn": 2, "warning": 2, "error": 3}


def milliseconds(duration: Duration) -> int:
    """Seconds, or a timedelta, as the protocol has them."""
    seconds = duration.total_seconds() if isinstance(duration, datetime.timedelta) else duration
    if seconds < 0:
        raise ValueError(f"a duration is not negative: {duration}")
    return int(seconds * 1000)


def plain_json(value: Any, what: str) -> bytes:
    try:
        return dumps(value)
    except (TypeError, ValueError) as error:
        raise TypeMismatch(f"{what} is not JSON: {error}") from None


def output_of(outcome: Outcome) -> bytes:
    """The JSON text of a good outcome; raises the error of another."""
    return value_of(outcome).data


class Sent(Awaitable["str | None"]):
    """A message that leaves if the transaction commits. Awaited, it gives the id of the workflow it starts."""

    def __init__(self, attempt: Attempt, number: int) -> None:
        self._attempt = attempt
        self._number = number

    def __await__(self) -> Generator[Any, None, str | None]:
        return self._id().__await__()

    async def _id(self) -> str | None:
        invocation: str | None = loads(output_of((await self._attempt.result(self._number)).outcome))
        return invocation


Address = tuple[str, bytes, str]
Target = Callable[..., Any] | str


def resolve(target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Address, bytes, Bound | None]:
    """The address and the input that the arguments of ``call`` and its like name."""
    if isinstance(target, str):
        key, handler, *rest = arguments
        if named or len(rest) > 1:
            raise TypeError("give service, key, handler and one input")
        address = (target, key.encode() if isinstance(key, str) else bytes(key), handler)
        return address, plain_json(rest[0] if rest else None, "the input"), None
    if not isinstance(target, Bound):
        raise TypeError(f"{target!r} is not a handler of an entity, such as Account('ann').deposit")
    return target.address, target.handler.bind(arguments, named), target


def call_bound(bound: Bound, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """``Account("ann").deposit(5)`` in a handler."""
    attempt = current.get(None)
    if attempt is None:
        raise UsageError(f"{bound!r} is called outside of a handler: use millrace.Client there")
    coroutine = attempt.context._call(bound, arguments, named)
    if not bound.handler.is_async and asyncio._get_running_loop() is None:
        # A plain `def` that calls a plain `def` gets its output, as its types say.
        return attempt.context.result(coroutine)
    return coroutine


class Context:
    """One call's context. It belongs to that call: keeping it for another raises.

    What waits is a coroutine; a plain ``def`` handler hands it to :meth:`result`.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._draws = 0

    # -- the call itself --------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The entity's key; empty in a route."""
        return self._attempt.start.key.decode(errors="replace")

    @property
    def id(self) -> str | None:
        """A workflow's invocation id, which ``ctx.signal`` and ``/invocations/{id}`` take."""
        return self._attempt.start.invocation or None

    def now_ms(self) -> int:
        """The time of the invocation in milliseconds since 1970: the same in all its calls and tries."""
        return self._attempt.start.now_ms

    def now(self) -> datetime.datetime:
        """The time of the invocation, in UTC."""
        return datetime.datetime.fromtimestamp(self.now_ms() / 1000, datetime.timezone.utc)

    def _draw(self) -> bytes:
        drawn = hashlib.sha256(self._attempt.start.seed + self._draws.to_bytes(8, "big")).digest()
        self._draws += 1
        return drawn

    def random(self) -> float:
        """A random number from 0 up to 1, the same when the handler runs again."""
        return float(int.from_bytes(self._draw()[:8], "big") >> 11) * 2.0**-53

    def uuid(self) -> str:
        """A random UUID, the same when the handler runs again."""
        return str(uuid.UUID(bytes=self._draw()[:16], version=4))

    def log(self, *values: Any, level: str = "info") -> None:
        """Writes a line to the server's log, at ``debug``, ``info``, ``warn`` or ``error``."""
        line = " ".join([str(value) for value in values]).encode(errors="replace")
        self._attempt.emit(Type.LOG, bytes((_LEVELS[level],)) + payloads.pack(line))

    @overload
    def result(self, awaited: Coroutine[Any, Any, R], /) -> R: ...
    @overload
    def result(self, awaited: str, /, *, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]: ...
    def result(self, awaited: Coroutine[Any, Any, Any] | str, /, *, timeout: Duration | None = None) -> Any:
        """``await ctx.result(id)`` waits for the end of another workflow and gives its output.

        It raises that workflow's error if it failed, and :class:`millrace.WaitTimeout` if it does not end within
        ``timeout`` seconds. For workflows only.

        A plain ``def`` handler waits with it for any coroutine: ``self.ctx.result(Account(to).deposit(5))``.
        """
        if isinstance(awaited, str):
            self._only_in_workflows("result")
            return self._await_workflow(awaited, timeout)
        if asyncio._get_running_loop() is not None:
            awaited.close()
            raise UsageError("ctx.result is for plain def handlers; await here")
        return self._attempt._threads.wait(self._attempt.loop, awaited)

    async def _await_workflow(self, id: str, timeout: Duration | None) -> Any:
        self._attempt.needs_version(2, "ctx.result")
        timeout_ms = None if timeout is None else milliseconds(timeout)
        outcome = await self._attempt.perform(Type.AWAIT, lambda number: payloads.encode_wait(number, id, timeout_ms))
        return loads(output_of(outcome))

    # -- other entities ---------------------------------------------------------------------------

    @overload
    def call(
        self, handler: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def call(self, handler: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> Coroutine[Any, Any, R]: ...
    @overload
    def call(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Coroutine[Any, Any, Any]: ...
    def call(self, target: Any, /, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        """Calls a handler in this transaction. ``Account(to).deposit(5)`` is short for it.

        In a workflow the call is a transaction of its own, made exactly once.
        """
        return self._call(target, arguments, named)

    @overload
    def call_with(
        self, retry: Retry, handler: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def call_with(
        self, retry: Retry, handler: Callable[P, R], /, *arguments: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def call_with(
        self, retry: Retry, service: str, key: str | bytes, handler: str, input: Any = None, /
    ) -> Coroutine[Any, Any, Any]: ...
    def call_with(self, retry: Retry, target: Any, /, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        """As ``call``, in a workflow: if the call fails it is tried again so, and not as the app says."""
        self._only_in_workflows("call_with")
        self._attempt.needs_version(3, "ctx.call_with")
        return self._call(target, arguments, named, retry.encode())

    def _call(
        self, target: Any, arguments: tuple[Any, ...], named: dict[str, Any], policy: bytes = b""
    ) -> Coroutine[Any, Any, Any]:
        (service, key, handler), data, bound = resolve(target, arguments, named)
        if bound is not None and bound.handler.kind is Kind.WORKFLOW:
            raise UsageError(f"{bound!r} is a workflow: start it with ctx.send")
        parts = [service.encode(), key, handler.encode(), data] + [policy] * bool(policy)
        return self._perform_call(parts, bound)

    async def _perform_call(self, parts: list[bytes], bound: Bound | None) -> Any:
        outcome = await self._attempt.perform(
            Type.CALL,
            lambda number: payloads.operation(number, *parts),
            payloads.HAS_POLICY if len(parts) > 4 else 0,
        )
        output = output_of(outcome)
        return loads(output) if bound is None else bound.handler.signature.load_output(output)

    @overload
    def send(self, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> Sent: ...
    @overload
    def send(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Sent: ...
    def send(self, target: Any, /, *arguments: Any, **named: Any) -> Sent:
        """Sends a call that happens exactly once after this transaction, and not at all if it fails.

        It need not be awaited. If the handler is a workflow, awaiting gives the workflow's id.
        """
        return self._send(0, target, arguments, named)

    @overload
    def send_after(
        self, delay: Duration, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs
    ) -> Sent: ...
    @overload
    def send_after(
        self, delay: Duration, service: str, key: str | bytes, handler: str, input: Any = None, /
    ) -> Sent: ...
    def send_after(self, delay: Duration, target: Any, /, *arguments: Any, **named: Any) -> Sent:
        """As ``send``; the call waits so many seconds after the commit, also through restarts."""
        return self._send(milliseconds(delay), target, arguments, named)

    @overload
    def send_as(self, id: str, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> Sent: ...
    @overload
    def send_as(self, id: str, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Sent: ...
    def send_as(self, id: str, target: Any, /, *arguments: Any, **named: Any) -> Sent:
        """Starts a workflow under this id, unless one was started before with the id, handler, key and input."""
        return self._send(0, target, arguments, named, id)

    def _send(
        self, delay_ms: int, target: Any, arguments: tuple[Any, ...], named: dict[str, Any], id: str | None = None
    ) -> Sent:
        (service, key, handler), data, _ = resolve(target, arguments, named)
        chosen = b""
        if id is not None:
            self._attempt.needs_version(2, "ctx.send_as")
            chosen = payloads.pack_text(id)
        behind = payloads.U64.pack(delay_ms) + chosen
        number = self._attempt.issue(
            Type.SEND,
            lambda number: payloads.operation(number, service.encode(), key, handler.encode(), data) + behind,
            payloads.HAS_ID if chosen else 0,
        )
        return Sent(self._attempt, number)

    def signal(self, invocation: str, name: str, payload: Any = None) -> None:
        """Sends a signal to a workflow, if this transaction commits."""
        parts = (invocation.encode(), name.encode(), plain_json(payload, "the payload"))
        self._attempt.emit(Type.SIGNAL, b"".join([payloads.pack(part) for part in parts]))

    def record(self, type: str, id: str | bytes) -> RecordRef:
        """A typed record, whether or not there is one of that id."""
        return RecordRef(self._attempt, type, id.encode() if isinstance(id, str) else id)

    def records(self, type: str) -> RecordsRef:
        """The records of a type."""
        return RecordsRef(self._attempt, type)

    def object(self, bucket: str, key: str) -> ObjectRef:
        """An object of a bucket, read and written in this transaction. Nothing is asked for before it is used."""
        self._attempt.needs_version(4, "ctx.object")
        check_names(bucket, key)
        return ObjectRef(self._attempt, bucket, key)

    def objects(self, bucket: str) -> ObjectsRef:
        """The objects of a bucket."""
        self._attempt.needs_version(4, "ctx.objects")
        check_names(bucket)
        return ObjectsRef(self._attempt, bucket)

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Headers | None = None,
        body: Any = None,
        timeout: Duration = 10,
        retries: int | None = None,
    ) -> FetchResponse:
        """Asks a server outside, through the store: in workflows, and in routes before their first call."""
        if self._attempt.start.kind in (Kind.TRANSACTION, Kind.QUERY):
            raise UsageError("transactions and queries cannot fetch, because they may run several times")
        request = encode_request(url, method, headers or {}, body, milliseconds(timeout), retries)
        outcome = await self._attempt.perform(Type.FETCH, lambda number: payloads.operation(number, request))
        return FetchResponse(output_of(outcome))

    # -- fields by name ---------------------------------------------------------------------------

    async def get(self, field: str, default: Any = None) -> Any:
        """A field's value by its stored name, declared or not."""
        stored = await self._attempt.get(field.encode())
        return default if stored is None else _plain(stored)

    def set(self, field: str, value: Any) -> None:
        """Sets a field by its stored name: JSON, or bytes."""
        raw = isinstance(value, (bytes, bytearray))
        stored = Value(payloads.RAW, bytes(value)) if raw else Value(payloads.JSON, plain_json(value, field))
        self._attempt.state_of_entity().write(field.encode(), stored)

    def delete(self, field: str) -> None:
        """Removes a field by its stored name. It need not be set."""
        self._attempt.state_of_entity().write(field.encode(), None)

    async def entries(
        self, *, prefix: str = "", after: str | None = None, limit: int = _ALL_FIELDS
    ) -> list[tuple[str, Any]]:
        """Fields with their values, in the order of their names' bytes."""
        behind = None if after is None else after.encode()
        rows = await self._attempt.scan(prefix.encode(), behind, limit)
        return [(name.decode(errors="replace"), _plain(value)) for name, value in rows]

    async def fields(self, *, prefix: str = "", after: str | None = None, limit: int = _ALL_FIELDS) -> list[str]:
        """Names of fields, in the order of their bytes."""
        return [name for name, _ in await self.entries(prefix=prefix, after=after, limit=limit)]

    # -- workflows --------------------------------------------------------------------------------

    def _only_in_workflows(self, what: str) -> None:
        if self._attempt.start.kind is not Kind.WORKFLOW:
            raise UsageError(f"ctx.{what} is for workflows: a transaction holds its locks meanwhile")

    async def sleep(self, duration: Duration) -> None:
        """Waits so many seconds, also through restarts."""
        self._only_in_workflows("sleep")
        delay = payloads.U64.pack(milliseconds(duration))
        output_of(await self._attempt.perform(Type.SLEEP, lambda number: payloads.U32.pack(number) + delay))

    async def wait(self, name: str, *, timeout: Duration | None = None) -> Any:
        """Waits for the next signal of this name; gives its payload.

        Raises :class:`millrace.WaitTimeout`, a ``TimeoutError``, if none comes within ``timeout`` seconds.
        """
        self._only_in_workflows("wait")
        timeout_ms = None if timeout is None else milliseconds(timeout)
        outcome = await self._attempt.perform(Type.WAIT, lambda number: payloads.encode_wait(number, name, timeout_ms))
        return loads(output_of(outcome))

    @overload
    async def step(
        self,
        name: str,
        code: Callable[..., Coroutine[Any, Any, R]],
        *arguments: Any,
        retry: Retry | None = None,
    ) -> R: ...
    @overload
    async def step(self, name: str, code: Callable[..., R], *arguments: Any, retry: Retry | None = None) -> R: ...
    async def step(self, name: str, code: Callable[..., Any], *arguments: Any, retry: Retry | None = None) -> Any:
        """Runs code and notes its result: code whose result is noted never runs again.

        A plain function runs in a thread. The result is what JSON makes of it, of the type that the
        function's annotation names.
        """
        self._only_in_workflows("step")
        return await run_step(self._attempt, name, code, arguments, retry)

    @overload
    def compensate(self, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> None: ...
    @overload
    def compensate(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> None: ...
    def compensate(self, target: Any, /, *arguments: Any, **named: Any) -> None:
        """Says how to undo what comes next: a call that is made if the workflow fails or is cancelled."""
        self._only_in_workflows("compensate")
        (service, key, handler), data, _ = resolve(target, arguments, named)
        parts = (service.encode(), key, handler.encode(), data)
        self._attempt.emit(Type.COMPENSATE, b"".join([payloads.pack(part) for part in parts]))


def _plain(value: Value) -> Any:
    return value.data if value.kind == payloads.RAW else loads(value.data)
