"""The handlers of examples/python under plain uvicorn, their state in Redis: no transaction, no lock, no log, no idempotency.

The classes are the SDK's, so that the same files run. What differs is what is below: an entity is a hash, a call of another
entity is a call in this process, and what a handler wrote is sent when it ends. APP names the module, REDIS the socket.
"""

import asyncio
import importlib
import os
import random
import time
from typing import Any

from millrace import Abort, Request
from millrace._protocol.frames import Type
from millrace._protocol.payloads import Cursor, Failure, Kind, Start, Value
from millrace._types import dumps
from millrace._worker.attempt import Attempt, current
from millrace.web import Query, Response
from redis.asyncio import Redis

SERVICES = importlib.import_module(os.environ["APP"]).services
DEFINITIONS = {service.service_name(): service._define() for service in SERVICES}

redis: Redis
messages: set[asyncio.Task[Any]] = set()


class RedisAttempt(Attempt):
    """One run of a handler. Raw values are stored behind the byte 1, JSON behind the byte 0."""

    def __init__(self, start: Start, definition: Any, handler: Any, name: bytes, request: Request | None) -> None:
        super().__init__(asyncio.get_running_loop(), start, definition, handler, None)  # type: ignore[arg-type]
        self.name = name
        self.request = request

    async def run(self) -> Any:
        token = current.set(self)
        try:
            if self.request is not None:
                return await self.handler.function(self._entity, self.request)
            value = self._call_handler()
            return self._output(await value if self.handler.is_async else value)
        finally:
            current.reset(token)

    async def save(self) -> None:
        written: dict[bytes, bytes] = {}
        removed: list[bytes] = []
        assert self._state is not None
        self._state.flush(lambda name, value: written.__setitem__(name, stored(value)), removed.append)
        if written:
            await redis.hset(self.name, mapping=written)  # type: ignore[arg-type]
        if removed:
            await redis.hdel(self.name, *removed)

    async def perform(self, type: Type, make_payload: Any) -> Any:
        assert type is Type.CALL, type
        cursor = Cursor(make_payload(0))
        cursor.u32()
        # As any service without transactions: what it calls sees what it wrote.
        if self._state is not None:
            await self.save()
        try:
            return await call(cursor.text(), cursor.bytes(), cursor.text(), cursor.bytes())
        except Abort as error:
            return Failure("aborted", error.message, b"" if error.payload is None else dumps(error.payload))

    def issue(self, type: Type, make_payload: Any) -> int:
        assert type is Type.SEND, type
        cursor = Cursor(make_payload(0))
        cursor.u32()
        message = asyncio.ensure_future(call(cursor.text(), cursor.bytes(), cursor.text(), cursor.bytes()))
        messages.add(message)
        message.add_done_callback(messages.discard)
        return 0

    async def get(self, name: bytes) -> Value | None:
        assert self._state is not None
        self._state.settle()
        known = self._state.lookup(name)
        if known is None or isinstance(known, Value):
            return known
        value = loaded(await redis.hget(self.name, name))  # type: ignore[arg-type]
        self._state.learn(name, value)
        return value

    async def scan(self, prefix: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, Value]]:
        await self.save()
        rows = await redis.hgetall(self.name)  # type: ignore[arg-type]
        names = sorted(name for name in rows if name.startswith(prefix) and (after is None or name > after))
        return [(name, value) for name in names[:limit] if (value := loaded(rows[name])) is not None]


def stored(value: Value) -> bytes:
    return bytes((value.kind,)) + value.data


def loaded(data: bytes | None) -> Value | None:
    return None if data is None else Value(data[0], data[1:])


def start_of(service: str, key: bytes, handler: str, kind: Kind, input: bytes, fields: Any) -> Start:
    return Start(
        attempt=b"", kind=kind, deadline_ms=10_000, seen=0, service=service, handler=handler, key=key, invocation="",
        now_ms=int(time.time() * 1000), seed=random.randbytes(16), input=input, fields=fields, whole=False, declared=True,
    )  # fmt: skip


async def call(service: str, key: bytes, name: str, input: bytes) -> Value:
    definition = DEFINITIONS[service]
    handler = definition.handlers[name]
    entity = b"%s/%s" % (service.encode(), key)
    fields: list[tuple[bytes, Value]] = []
    if definition.declared:
        names = [field if isinstance(field, bytes) else field.encode() for field in definition.declared]
        values = await redis.hmget(entity, names)  # type: ignore[arg-type]
        fields = [(name, value) for name, data in zip(names, values) if (value := loaded(data)) is not None]
    start = start_of(service, key, name, handler.kind, input, tuple(fields))
    attempt = RedisAttempt(start, definition, handler, entity, None)
    output: Value = await attempt.run()
    await attempt.save()
    return output


async def route(service: str, name: str, scope: Any, body: bytes) -> Response:
    definition = DEFINITIONS[service]
    request = Request.__new__(Request)
    request.method, request.path, request.params = scope["method"], scope["path"], {}
    request.query, request.body = Query(scope["query_string"].decode()), body
    request._headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    start = start_of(service, b"", name, Kind.ROUTE, b"", ())
    value = await RedisAttempt(start, definition, definition.routes[name], b"", request).run()
    return value if isinstance(value, Response) else Response(value)


async def answer(scope: Any, body: bytes) -> tuple[int, bytes]:
    if scope["path"] == "/healthz":
        return 200, b"ok"
    parts = scope["path"].strip("/").split("/")
    try:
        if parts[0] == "call":
            _, service, key, handler = parts
            return 200, (await call(service, key.encode(), handler, body)).data
        response = await route(parts[0], f"{scope['method']} /{'/'.join(parts[1:])}", scope, body)
    except Abort as error:
        return 409, dumps({"code": "aborted", "detail": error.message})
    if isinstance(response.body, bytes):
        return response.status or 200, response.body
    return response.status or 200, response.body.encode() if isinstance(response.body, str) else dumps(response.body)


async def app(scope: Any, receive: Any, send: Any) -> None:
    global redis
    if scope["type"] == "lifespan":
        await receive()
        redis = Redis(unix_socket_path=os.environ["REDIS"], max_connections=256)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    message = await receive()
    body = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    status, content = await answer(scope, body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
