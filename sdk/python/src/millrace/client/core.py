"""What both clients have in common: requests, replies, and when a request is sent again. No I/O."""

from __future__ import annotations

import copy
import os
import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from .._types import loads
from ..context import plain_json, resolve
from ..errors import MillraceError, error_of
from ..service import Service

KEY_VARIABLE = "MILLRACE_KEY"
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
# The server answers a wait at the latest after a minute.
_LONGEST_WAIT_SECONDS = 30.0
# Statuses that say: nothing was done, come again.
_TRY_AGAIN = (429, 502, 503)


class Unreachable(MillraceError, ConnectionError):
    """The server could not be reached, or the connection broke before its answer came."""


@dataclass(frozen=True)
class Reply:
    """What the server answered. ``headers`` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return loads(self.body)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True)
class Prepared:
    """A request, and what its good reply means."""

    method: str
    path: str
    decode: Callable[[Reply], Any]
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    #: How much longer than usual the reply may take.
    extra_seconds: float = 0.0


@dataclass(frozen=True)
class Pause:
    seconds: float


Plan = Generator["Prepared | Pause", "Reply | Exception | None", Any]


@dataclass(frozen=True)
class Options:
    """Settings of a client."""

    url: str
    app: str | None = None
    key: str | None = None
    timeout: float = 30.0
    retries: int = 5
    idempotency_key: str | None = None

    @classmethod
    def make(cls, url: str, app: str | None, key: str | None, timeout: float, retries: int) -> Options:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"the server's URL is http://… or https://…, not {url!r}")
        return cls(url.rstrip("/"), app, key or os.environ.get(KEY_VARIABLE) or None, timeout, retries)

    def changed(self, **changes: Any) -> Options:
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    # -- requests ---------------------------------------------------------------------------------

    def _headers(self, once: bool) -> dict[str, str]:
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        if once:
            headers["idempotency-key"] = self.idempotency_key or str(uuid.uuid4())
        return headers

    def _path(self, *parts: str | bytes) -> str:
        app = ("apps", self.app) if self.app else ()
        return "/" + "/".join([quote(part, safe="") for part in (*app, *parts)])

    def call(self, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Prepared:
        (service, key, handler), data, bound = resolve(target, arguments, named)
        path = self._path("call", service, key, handler)
        decode = _json if bound is None else lambda reply: bound.handler.signature.load_output(reply.body)
        return Prepared("POST", path, decode, {**self._headers(True), **_JSON}, data)

    def send(
        self, delay_ms: int, target: Any, arguments: tuple[Any, ...], named: dict[str, Any], id: str | None = None
    ) -> Prepared:
        (service, key, handler), data, _ = resolve(target, arguments, named)
        query = {**({"delay_ms": delay_ms} if delay_ms else {}), **({} if id is None else {"id": id})}
        path = self._path("send", service, key, handler) + (f"?{urlencode(query)}" if query else "")
        return Prepared("POST", path, lambda reply: reply.json()["id"], {**self._headers(True), **_JSON}, data)

    def state(self, target: Any, key: str | bytes | None, field: str | None) -> Prepared:
        if isinstance(target, Service):
            service, entity = type(target).service_name(), target.key_bytes
        else:
            service, entity = target, key.encode() if isinstance(key, str) else key or b""
        parts: tuple[str | bytes, ...] = ("state", service, entity)
        path = self._path(*parts) if field is None else self._path(*parts, field)
        return Prepared("GET", path, _value, self._headers(False))

    def invocation(self, id: str, wait_seconds: float = 0.0) -> Prepared:
        wait = f"?wait_ms={int(wait_seconds * 1000)}" if wait_seconds else ""
        path = f"/invocations/{quote(id, safe='')}{wait}"
        return Prepared("GET", path, _json, self._headers(False), extra_seconds=wait_seconds)

    def invocations(self, filters: dict[str, Any]) -> Prepared:
        query = urlencode({name: value for name, value in filters.items() if value is not None})
        return Prepared("GET", f"/invocations?{query}" if query else "/invocations", _json, self._headers(False))

    def signal(self, id: str, name: str, payload: Any) -> Prepared:
        path = f"/invocations/{quote(id, safe='')}/signal"
        body = plain_json({"name": name, "payload": payload}, "the payload")
        return Prepared("POST", path, _nothing, {**self._headers(True), **_JSON}, body)

    def cancel(self, id: str) -> Prepared:
        return Prepared("POST", f"/invocations/{quote(id, safe='')}/cancel", _nothing, self._headers(False))

    def request(
        self, method: str, path: str, json: Any, body: bytes | None, headers: Mapping[str, str] | None
    ) -> Prepared:
        once = method.upper() not in ("GET", "HEAD", "OPTIONS")
        own = {name.lower(): value for name, value in (headers or {}).items()}
        if body is None and json is not None:
            body = plain_json(json, "the body")
            own.setdefault("content-type", "application/json")
        sent = {**self._headers(once), **own}
        prefix = f"/apps/{quote(self.app, safe='')}" if self.app else ""
        return Prepared(method.upper(), prefix + path, lambda reply: reply, sent, body or b"")

    # -- when a request is sent again -------------------------------------------------------------

    def plan(self, prepared: Prepared, raise_for_status: bool = True) -> Plan:
        """Yields what to do next, is sent how it went, and returns what the reply means.

        Every request of :class:`Prepared` may be sent twice: it reads, or it has an idempotency key.
        """
        pause = _FIRST_PAUSE_SECONDS
        for left in range(self.retries, -1, -1):
            outcome = yield prepared
            assert outcome is not None
            if isinstance(outcome, Reply):
                if outcome.status not in _TRY_AGAIN or not left:
                    return prepared.decode(outcome) if outcome.ok or not raise_for_status else _fail(outcome)
                seconds = _retry_after(outcome) or pause
            else:
                if not left:
                    raise Unreachable(f"{self.url}: {outcome}") from outcome
                seconds = pause
            # Jittered, so that clients that failed together do not come again together.
            yield Pause(min(seconds, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0))
            pause *= 2
        raise AssertionError("the loop ends by itself")


_JSON = {"content-type": "application/json"}


def _json(reply: Reply) -> Any:
    return reply.json()


def _nothing(reply: Reply) -> None:
    return None


def _value(reply: Reply) -> Any:
    raw = reply.headers.get("content-type", "").startswith("application/octet-stream")
    return reply.body if raw else reply.json()


def _retry_after(reply: Reply) -> float:
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _fail(reply: Reply) -> Any:
    try:
        problem = reply.json()
        code, message = problem["code"], problem.get("detail", "")
    except (ValueError, TypeError, KeyError):
        raise error_of("http", f"status {reply.status}", status=reply.status) from None
    raise error_of(code, message, problem.get("payload"), status=reply.status)


def outcome_of(invocation: dict[str, Any]) -> tuple[bool, Any]:
    """Whether an invocation has ended, and its output. Raises its error."""
    status = invocation["status"]
    if status == "succeeded":
        return True, invocation.get("output")
    if status in ("failed", "cancelled"):
        problem = invocation.get("error") or {}
        raise error_of(
            problem.get("code", status), problem.get("detail", ""), problem.get("payload"), status=problem.get("status")
        )
    return False, None


def wait_seconds(end: float | None) -> float:
    """How long one request may wait for the end of an invocation. ``end`` is a time of the monotonic clock."""
    left = _LONGEST_WAIT_SECONDS if end is None else end - time.monotonic()
    return max(0.001, min(left, _LONGEST_WAIT_SECONDS))


PoolT = TypeVar("PoolT")
ClientT = TypeVar("ClientT", bound="ClientBase[Any]")


class ClientBase(Generic[PoolT]):
    """Settings and connections of a client, blocking or not."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        app: str | None = None,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
    ) -> None:
        self._options = Options.make(url, app, key, timeout, retries)
        self._pool = self._new_pool(self._options.url)

    def _new_pool(self, url: str) -> PoolT:
        raise NotImplementedError

    def with_options(
        self: ClientT, *, idempotency_key: str | None = None, timeout: float | None = None, retries: int | None = None
    ) -> ClientT:
        """A client on the same connections with other settings; an idempotency key of your own is one."""
        changed = copy.copy(self)
        changed._options = self._options.changed(idempotency_key=idempotency_key, timeout=timeout, retries=retries)
        return changed
