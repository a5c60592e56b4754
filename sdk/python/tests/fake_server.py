"""A server in this process that speaks the protocol: entities in a dict, one transaction at a time.

It holds a worker to the protocol: it decodes every frame, checks numbers, checksums and the order of turns,
and it can lose replies, forget what a worker kept, and answer one result at a time.
"""

from __future__ import annotations

import base64
import copy
import os
import re
import zlib
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from millrace._protocol import payloads
from millrace._protocol.frames import VERSION, Frame, Type, decode_all, encode
from millrace._protocol.payloads import Cursor, Failure, Kind, Outcome, Result, Start, Value
from millrace._types import dumps, loads


class Worker(Protocol):
    def discovery(self, mode: str) -> bytes: ...
    async def invoke(self, body: bytes, attempt_header: str, version: int = VERSION) -> bytes: ...


class ServerError(Exception):
    """What a caller outside gets."""

    def __init__(self, failure: Failure, trace: str = "") -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.code, self.message = failure.code, failure.message
        self.detail = loads(failure.detail) if failure.detail else None
        self.trace = trace


@dataclass
class Run:
    """One attempt, as the server sees it."""

    start: Start
    inputs: list[bytes] = field(default_factory=list)
    seen: int = 0
    checksum: int = 0
    operations: int = 0
    unanswered: dict[int, Frame] = field(default_factory=dict)


NULL = Value(0, b"null")
State = dict[tuple[str, bytes], dict[bytes, Value]]


class FakeServer:
    def __init__(self, worker: Worker, *, replay: bool = False, one_by_one: bool = False, whole: bool = True) -> None:
        import json

        self.worker = worker
        #: Whether each turn begins from the start, as with a worker that keeps nothing.
        self.replay = replay
        self.one_by_one = one_by_one
        self.whole = whole
        self.entities: State = {}
        self.sent: list[tuple[str, bytes, str, bytes, int]] = []
        self.sent_ids: list[str] = []
        #: How calls of workflows are to be tried again.
        self.policies: list[bytes] = []
        self.version = VERSION
        self.signals: list[tuple[str, str, bytes]] = []
        self.compensations: list[tuple[str, bytes, str, bytes]] = []
        self.logs: list[tuple[int, str]] = []
        self.frames: list[Frame] = []
        self.turns = 0
        #: Results of operations that only a real server can perform, by type: taken in order.
        self.answers: dict[Type, list[Outcome]] = {}
        self.services: dict[str, Any] = {
            service["name"]: service for service in json.loads(worker.discovery("request-reply"))["services"]
        }

    async def call(self, service: str, key: str, handler: str, input: Any = None) -> Any:
        """A call from outside: a transaction."""
        before = copy.deepcopy(self.entities)
        sent = len(self.sent)
        try:
            output = await self._run(service, key.encode(), handler, dumps(input))
        except ServerError:
            self.entities = before
            del self.sent[sent:]
            raise
        return loads(output.data)

    async def drain(self) -> None:
        """Runs what was sent."""
        while self.sent:
            service, key, handler, input, _ = self.sent.pop(0)
            await self.call(service, key.decode(), handler, loads(input))

    async def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """A request to a route: its status and its body."""
        path, _, query = path.partition("?")
        service, _, rest = path.lstrip("/").partition("/")
        for route in self.services[service].get("routes", []):
            pattern = re.sub(r":(\w+)", r"(?P<\1>[^/]+)", route["path"])
            match = re.fullmatch(pattern, "/" + rest)
            if route["method"] == method and match:
                described = {
                    "method": method,
                    "path": path,
                    "query": query,
                    "params": {name: unquote(value) for name, value in match.groupdict().items()},
                    "headers": [[name, value] for name, value in (headers or {}).items()],
                    "body": base64.b64encode(b"" if body is None else dumps(body)).decode(),
                }
                before = copy.deepcopy(self.entities)
                try:
                    output = await self._run(service, b"", f"{method} {route['path']}", dumps(described), Kind.ROUTE)
                except ServerError:
                    self.entities = before
                    raise
                reply = loads(output.data)
                content = base64.b64decode(reply["body"])
                kind = dict(reply["headers"]).get("content-type", "")
                return reply["status"], loads(content) if kind == "application/json" else content
        raise AssertionError(f"no route {method} {path}")

    # -- attempts ---------------------------------------------------------------------------------

    def _kind(self, service: str, handler: str) -> Kind:
        for described in self.services.get(service, {"handlers": []})["handlers"]:
            if described["name"] == handler:
                return Kind[described["kind"].upper()]
        raise ServerError(Failure("unknown-handler", f"there is no {service}/{handler}"))

    def start(self, service: str, key: bytes, handler: str, input: bytes, kind: Kind | None = None) -> Start:
        if kind is None:
            kind = self._kind(service, handler)
        fields = self.entities.get((service, key), {}) if kind in (Kind.TRANSACTION, Kind.QUERY) else {}
        given, whole = self._given(service, fields)
        return Start(
            attempt=os.urandom(16),
            kind=kind,
            deadline_ms=5_000,
            seen=0,
            service=service,
            handler=handler,
            key=key,
            invocation="inv_1" if kind is Kind.WORKFLOW else "",
            now_ms=1_700_000_000_123,
            seed=b"s" * 16,
            input=input,
            fields=tuple(given.items()),
            whole=whole,
            declared=True,
        )

    def _fields(self, start: Start) -> dict[bytes, Value]:
        return self.entities.get((start.service, start.key), {})

    def _given(self, service: str, fields: dict[bytes, Value]) -> tuple[dict[bytes, Value], bool]:
        """The fields that travel, and whether they are all."""
        described = self.services[service]
        whole = self.whole and described["whole_up_to_bytes"] > 0
        names = [name.encode() for name in described["fields"]]
        return fields if whole else {name: fields[name] for name in names if name in fields}, whole

    async def _run(self, service: str, key: bytes, handler: str, input: bytes, kind: Kind | None = None) -> Value:
        run = Run(self.start(service, key, handler, input, kind))
        while True:
            frames = await self.turn(run)
            ended = await self._perform(run, frames)
            if ended is not None:
                return ended

    async def turn(self, run: Run) -> list[Frame]:
        """One request and its reply: the frames that are new."""
        start = run.start._replace(seen=run.seen)
        payload, flags = payloads.encode_start(start)
        body = encode(Type.START, payload, flags) + b"".join(run.inputs)
        if self.replay:
            self.worker._kept.clear()  # type: ignore[attr-defined]
        reply = await self.worker.invoke(body, start.attempt.hex(), self.version)
        self.turns += 1
        frames = decode_all(reply)
        if run.seen:
            resumed = frames.pop(0)
            assert resumed.type is Type.RESUMED, frames
            cursor = Cursor(resumed.payload)
            again, checksum = cursor.u32(), cursor.u32()
            if (again, checksum) != (run.seen, run.checksum):
                raise ServerError(Failure("not-deterministic", f"{again} of {run.seen} frames came again"))
        for frame in frames:
            if frame.type is not Type.SUSPEND:
                run.seen += 1
                run.checksum = zlib.crc32(encode(frame.type, frame.payload, frame.flags, frame.stream), run.checksum)
        assert frames[-1].type in (Type.SUSPEND, Type.OUTPUT, Type.FAILURE), frames
        assert all(frame.type not in (Type.SUSPEND, Type.OUTPUT, Type.FAILURE) for frame in frames[:-1]), frames
        self.frames += frames
        return frames

    async def _perform(self, run: Run, frames: list[Frame]) -> Value | None:
        for frame in frames:
            cursor = Cursor(frame.payload)
            if frame.type is Type.OUTPUT:
                value = cursor.value()
                cursor.end()
                return value
            if frame.type is Type.FAILURE:
                raise ServerError(cursor.failure(), cursor.text())
            if frame.type is Type.SUSPEND:
                await self._answer(run, [cursor.u32() for _ in range(cursor.u32())])
            elif frame.type in IMMEDIATE:
                IMMEDIATE[frame.type](self, run, cursor)
            else:
                number = cursor.u32()
                if frame.type is not Type.STEP_END:
                    run.operations += 1
                    assert number == run.operations, "operations are numbered 1, 2, 3, …"
                if frame.type is Type.SEND:
                    self._send(cursor, bool(frame.flags))
                run.unanswered[number] = frame
        return None

    async def _answer(self, run: Run, waiting: list[int]) -> None:
        assert waiting, "a worker suspends for something"
        for number in waiting[:1] if self.one_by_one else waiting:
            frame = run.unanswered.pop(number)
            before = dict(self._fields(run.start))
            outcome, is_set = await self._outcome(run, frame)
            after = self._fields(run.start)
            if frame.type is Type.CALL and after != before and run.start.kind is Kind.TRANSACTION:
                # The callee has written the caller's own entity: all that START would say now.
                given = self._given(run.start.service, after)[0]
                void = payloads.encode_fields(payloads.Fields(tuple(given.items()), True))
                run.inputs.append(encode(Type.FIELDS, void, payloads.VOID))
            result = payloads.encode_result(Result(number, outcome))
            run.inputs.append(encode(Type.RESULT, result, int(is_set)))

    async def _outcome(self, run: Run, frame: Frame) -> tuple[Outcome, bool]:
        cursor = Cursor(frame.payload)
        cursor.u32()
        entity = self.entities.setdefault((run.start.service, run.start.key), {})
        if frame.type is Type.GET:
            name = cursor.bytes()
            return entity.get(name, NULL), name in entity
        if frame.type is Type.SCAN:
            prefix = cursor.bytes()
            after = cursor.bytes() if cursor.flag() else None
            limit = cursor.u32()
            names = [name for name in sorted(entity) if name.startswith(prefix) and (after is None or name > after)]
            return Value(1, payloads.encode_scan_rows([(name, entity[name]) for name in names[:limit]])), False
        if frame.type is Type.CALL:
            return await self._call(cursor, frame.flags), False
        if frame.type is Type.SEND:
            id = self.sent_ids[-1] if frame.flags else None
            return Value(0, dumps(id)), False
        if frame.type is Type.STEP:
            return Value(1, b""), False
        if frame.type is Type.STEP_END:
            return cursor.outcome(), False
        if frame.type is Type.SLEEP:
            return NULL, False
        return self.answers[frame.type].pop(0), False

    async def _call(self, cursor: Cursor, flags: int) -> Outcome:
        service, key, handler, input = cursor.text(), cursor.bytes(), cursor.text(), cursor.bytes()
        if flags:
            self.policies.append(cursor.bytes())
        cursor.end()
        before = copy.deepcopy(self.entities)
        try:
            return await self._run(service, key, handler, input)
        except ServerError as error:
            self.entities = before
            return Failure(error.code, error.message, b"" if error.detail is None else dumps(error.detail))

    def _entity(self, run: Run) -> dict[bytes, Value]:
        assert run.start.kind is Kind.TRANSACTION, "only a transaction writes"
        return self.entities.setdefault((run.start.service, run.start.key), {})

    def _set(self, run: Run, cursor: Cursor) -> None:
        name = cursor.bytes()
        self._entity(run)[name] = cursor.value()
        cursor.end()

    def _delete(self, run: Run, cursor: Cursor) -> None:
        self._entity(run).pop(cursor.bytes(), None)
        cursor.end()

    def _send(self, cursor: Cursor, has_id: bool) -> None:
        self.sent.append((cursor.text(), cursor.bytes(), cursor.text(), cursor.bytes(), cursor.u64()))
        if has_id:
            self.sent_ids.append(cursor.text())
        cursor.end()

    def _signal(self, run: Run, cursor: Cursor) -> None:
        self.signals.append((cursor.text(), cursor.text(), cursor.bytes()))
        cursor.end()

    def _compensate(self, run: Run, cursor: Cursor) -> None:
        self.compensations.append((cursor.text(), cursor.bytes(), cursor.text(), cursor.bytes()))
        cursor.end()

    def _log(self, run: Run, cursor: Cursor) -> None:
        self.logs.append((cursor.u8(), cursor.text()))
        cursor.end()


IMMEDIATE = {
    Type.SET: FakeServer._set,
    Type.DELETE: FakeServer._delete,
    Type.SIGNAL: FakeServer._signal,
    Type.COMPENSATE: FakeServer._compensate,
    Type.LOG: FakeServer._log,
}
