"""The client for code that blocks."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload
from urllib.parse import urlsplit

from ..context import Duration, milliseconds
from ..service import Service
from .core import ClientBase, Pause, Plan, Prepared, Reply, outcome_of, wait_seconds

P = ParamSpec("P")
R = TypeVar("R")

# Connections that wait for their next request. More are opened as threads need them.
_IDLE_CONNECTIONS = 32


class _Pool:
    """Connections that are kept. Threads share them, each request has one for itself."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            if self._tls is None:
                return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection

    def exchange(self, prepared: Prepared, timeout: float) -> Reply:
        connection = self._take(timeout + prepared.extra_seconds)
        try:
            path = self._prefix + prepared.path
            connection.request(prepared.method, path, prepared.body or None, prepared.headers)
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            connection.close()
            raise
        headers = {name.lower(): value for name, value in response.getheaders()}
        with self._lock:
            keep = len(self._idle) < _IDLE_CONNECTIONS
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return Reply(response.status, headers, body)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Invocation:
    """A call that was sent, or a workflow."""

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id = id

    def describe(self) -> dict[str, Any]:
        """What the server says of it: its status, its journal, its output."""
        described: dict[str, Any] = self._client._do(self._client._options.invocation(self.id))
        return described

    def status(self) -> str:
        return str(self.describe()["status"])

    def result(self, timeout: Duration | None = None) -> Any:
        """Waits for its end and gives its output. Raises its error, or ``TimeoutError``."""
        end = None if timeout is None else time.monotonic() + milliseconds(timeout) / 1000
        while True:
            ended, output = outcome_of(self._client._do(self._client._options.invocation(self.id, wait_seconds(end))))
            if ended:
                return output
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the invocation {self.id} has not ended")

    def signal(self, name: str, payload: Any = None) -> None:
        self._client._do(self._client._options.signal(self.id, name, payload))

    def cancel(self) -> None:
        """Ends a workflow; what it registered with ``ctx.compensate`` is called."""
        self._client._do(self._client._options.cancel(self.id))

    def __repr__(self) -> str:
        return f"<invocation {self.id}>"


class Client(ClientBase[_Pool]):
    """A client of one node. Threads may share it.

    Handlers are named as ``client.call(Account("ann").deposit, 5)``, with types, or as
    ``client.call("account", "ann", "deposit", 5)``.
    """

    def _new_pool(self, url: str) -> _Pool:
        return _Pool(url)

    def _do(self, prepared: Prepared) -> Any:
        return self._drive(self._options.plan(prepared))

    def _drive(self, plan: Plan) -> Any:
        outcome: Reply | Exception | None = None
        while True:
            try:
                action = plan.send(outcome)
            except StopIteration as end:
                return end.value
            if isinstance(action, Pause):
                time.sleep(action.seconds)
                outcome = None
                continue
            try:
                outcome = self._pool.exchange(action, self._options.timeout)
            except (OSError, http.client.HTTPException) as error:
                outcome = error

    @overload
    def call(self, handler: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs) -> R: ...
    @overload
    def call(self, handler: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> R: ...
    @overload
    def call(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Any: ...
    def call(self, target: Any, /, *arguments: Any, **named: Any) -> Any:
        """Calls a handler; gives its output once it is durable."""
        return self._do(self._options.call(target, arguments, named))

    @overload
    def send(self, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> Invocation: ...
    @overload
    def send(self, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Invocation: ...
    def send(self, target: Any, /, *arguments: Any, **named: Any) -> Invocation:
        """Has a handler called later, exactly once; starts a workflow."""
        return Invocation(self, self._do(self._options.send(0, target, arguments, named)))

    @overload
    def send_after(
        self, delay: Duration, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs
    ) -> Invocation: ...
    @overload
    def send_after(
        self, delay: Duration, service: str, key: str | bytes, handler: str, input: Any = None, /
    ) -> Invocation: ...
    def send_after(self, delay: Duration, target: Any, /, *arguments: Any, **named: Any) -> Invocation:
        """As ``send``, at least so many seconds later."""
        return Invocation(self, self._do(self._options.send(milliseconds(delay), target, arguments, named)))

    @overload
    def send_as(self, id: str, handler: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> Invocation: ...
    @overload
    def send_as(self, id: str, service: str, key: str | bytes, handler: str, input: Any = None, /) -> Invocation: ...
    def send_as(self, id: str, target: Any, /, *arguments: Any, **named: Any) -> Invocation:
        """Starts a workflow under this id. One that was started before with the id, handler, key and input is given."""
        return Invocation(self, self._do(self._options.send(0, target, arguments, named, id)))

    def state(self, entity: Service | str, key: str | bytes | None = None, *, field: str | None = None) -> Any:
        """The stored fields of an entity, or one of them: ``client.state(Account("ann"))``."""
        return self._do(self._options.state(entity, key, field))

    def invocation(self, id: str) -> Invocation:
        return Invocation(self, id)

    def invocations(
        self,
        *,
        service: str | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Any:
        """A page of workflows."""
        filters = {"service": service, "status": status, "after": after, "limit": limit}
        return self._do(self._options.invocations(filters))

    def request(
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
        reply: Reply = self._drive(self._options.plan(prepared, raise_for_status=False))
        return reply

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
