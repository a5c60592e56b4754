"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from ..context import Duration, milliseconds
from ..service import Service
from .core import ClientBase, Pause, Plan, Prepared, Reply, outcome_of, wait_seconds
from .http1 import HttpError, Pool

P = ParamSpec("P")
R = TypeVar("R")


class AsyncInvocation:
    """A call that was sent, or a workflow."""

    def __init__(self, client: AsyncClient, id: str) -> None:
        self._client = client
        self.id = id

    async def describe(self) -> dict[str, Any]:
        """What the server says of it: its status, its journal, its output."""
        described: dict[str, Any] = await self._client._do(self._client._options.invocation(self.id))
        return described

    async def status(self) -> str:
        return str((await self.describe())["status"])

    async def result(self, timeout: Duration | None = None) -> Any:
        """Waits for its end and gives its output. Raises its error, or ``TimeoutError``."""
        end = None if timeout is None else time.monotonic() + milliseconds(timeout) / 1000
        while True:
            ended, output = outcome_of(
                await self._client._do(self._client._options.invocation(self.id, wait_seconds(end)))
            )
            if ended:
                return output
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the invocation {self.id} has not ended")

    async def signal(self, name: str, payload: Any = None) -> None:
        await self._client._do(self._client._options.signal(self.id, name, payload))

    async def cancel(self) -> None:
        """Ends a workflow; what it registered with ``ctx.compensate`` is called."""
        await self._client._do(self._client._options.cancel(self.id))

    def __repr__(self) -> str:
        return f"<invocation {self.id}>"


class AsyncClient(ClientBase[Pool]):
    """A client of one node. It belongs to one event loop.

    Handlers are named as ``await client.call(Account("ann").deposit, 5)``, with types, or as
    ``await client.call("account", "ann", "deposit", 5)``.
    """

    def _new_pool(self, url: str) -> Pool:
        return Pool(url)

    async def _do(self, prepared: Prepared) -> Any:
        return await self._drive(self._options.plan(prepared))

    async def _drive(self, plan: Plan) -> Any:
        outcome: Reply | Exception | None = None
        while True:
            try:
                action = plan.send(outcome)
            except StopIteration as end:
                return end.value
            if isinstance(action, Pause):
                await asyncio.sleep(action.seconds)
                outcome = None
                continue
            try:
                outcome = await self._pool.exchange(action, self._options.timeout)
            except (OSError, HttpError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                outcome = error

    @overload
    async def call(
        self, handler: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs
    ) -> R: ...
    @overload
    async def call(self, handler: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> R: ...
    @overload
    async def call(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Any: ...
    async def call(self, target: Any, /, *arguments: Any, **named: Any) -> Any:
        """Calls a handler; gives its output once it is durable."""
        return await self._do(self._options.call(target, arguments, named))

    @overload
    async def send(self, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> AsyncInvocation: ...
    @overload
    async def send(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> AsyncInvocation: ...
    async def send(self, target: Any, /, *arguments: Any, **named: Any) -> AsyncInvocation:
        """Has a handler called later, exactly once; starts a workflow."""
        return AsyncInvocation(self, await self._do(self._options.send(0, target, arguments, named)))

    @overload
    async def send_after(
        self, delay: Duration, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs
    ) -> AsyncInvocation: ...
    @overload
    async def send_after(
        self, delay: Duration, service: str, key: str | bytes, handler: str, input: Any = None, /
    ) -> AsyncInvocation: ...
    async def send_after(self, delay: Duration, target: Any, /, *arguments: Any, **named: Any) -> AsyncInvocation:
        """As ``send``, at least so many seconds later."""
        return AsyncInvocation(self, await self._do(self._options.send(milliseconds(delay), target, arguments, named)))

    @overload
    async def send_as(
        self, id: str, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs
    ) -> AsyncInvocation: ...
    @overload
    async def send_as(
        self, id: str, service: str, key: str | bytes, handler: str, input: Any = None, /
    ) -> AsyncInvocation: ...
    async def send_as(self, id: str, target: Any, /, *arguments: Any, **named: Any) -> AsyncInvocation:
        """Starts a workflow under this id. One that was started before with the id, handler, key and input is given."""
        return AsyncInvocation(self, await self._do(self._options.send(0, target, arguments, named, id)))

    async def state(self, entity: Service | str, key: str | bytes | None = None, *, field: str | None = None) -> Any:
        """The stored fields of an entity, or one of them: ``client.state(Account("ann"))``."""
        return await self._do(self._options.state(entity, key, field))

    def invocation(self, id: str) -> AsyncInvocation:
        return AsyncInvocation(self, id)

    async def invocations(
        self,
        *,
        service: str | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Any:
        """A page of workflows."""
        filters = {"service": service, "status": status, "after": after, "limit": limit}
        return await self._do(self._options.invocations(filters))

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """A request to a route. An error status is a reply, too."""
        prepared = self._options.request(method, path, json, body, headers)
        reply: Reply = await self._drive(self._options.plan(prepared, raise_for_status=False))
        return reply

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
