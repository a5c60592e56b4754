"""Payloads of frames: what the server sends is decoded, what a worker sends is encoded.

Both directions of both are here, because a test double of the server needs the other half.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from .frames import ProtocolError

U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
_START_HEAD = struct.Struct(">16sBII")
_START_MIDDLE = struct.Struct(">Q16s")

JSON = 0
RAW = 1
NULL = b"null"

WHOLE = 0b01
DECLARED = 0b10
IS_SET = 0b1
VOID = 0b1
TERMINAL = 0b1
HAS_ID = 0b1
HAS_POLICY = 0b1


class Kind(IntEnum):
    """Kinds of handlers, as START names them."""

    TRANSACTION = 0
    QUERY = 1
    WORKFLOW = 2
    ROUTE = 3


class Value(NamedTuple):
    """A stored or returned value: JSON text, or raw bytes."""

    kind: int
    data: bytes


class Failure(NamedTuple):
    """An error on the wire. ``detail`` is JSON text, or empty."""

    code: str
    message: str
    detail: bytes = b""


Outcome = Value | Failure


class Result(NamedTuple):
    """What the server answers to one operation."""

    operation: int
    outcome: Outcome
    is_set: bool = False


class Fields(NamedTuple):
    """Fields that are not as the worker knows them; with ``void``, nor is anything else."""

    fields: tuple[tuple[bytes, Value | None], ...]
    void: bool = False


class Start(NamedTuple):
    """The beginning of an attempt."""

    attempt: bytes
    kind: Kind
    deadline_ms: int
    seen: int
    service: str
    handler: str
    key: bytes
    invocation: str
    now_ms: int
    seed: bytes
    input: bytes
    fields: tuple[tuple[bytes, Value], ...] = ()
    whole: bool = False
    declared: bool = True


class Cursor:
    """Reads a payload from its start. Every read is checked against the end."""

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    def take(self, count: int) -> bytes:
        end = self.offset + count
        if end > len(self.data):
            raise ProtocolError("a payload is cut off")
        taken = self.data[self.offset : end]
        self.offset = end
        return taken

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def bytes(self) -> bytes:
        return self.take(int.from_bytes(self.take(4), "big"))

    def text(self) -> str:
        try:
            return str(self.bytes(), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8") from None

    def flag(self) -> bool:
        byte = self.u8()
        if byte > 1:
            raise ProtocolError(f"a flag is 0 or 1, not {byte}")
        return byte == 1

    def value(self) -> Value:
        kind = self.u8()
        if kind > RAW:
            raise ProtocolError(f"unknown kind of value {kind}")
        return Value(kind, self.bytes())

    def failure(self) -> Failure:
        return Failure(self.text(), self.text(), self.bytes())

    def outcome(self) -> Outcome:
        return self.failure() if self.flag() else self.value()

    def end(self) -> None:
        if self.offset != len(self.data):
            raise ProtocolError("a payload has bytes left over")


def pack(data: bytes) -> bytes:
    """``bytes`` of the protocol: a length of 4 bytes and that many bytes."""
    return U32.pack(len(data)) + data


def pack_text(text: str) -> bytes:
    return pack(text.encode())


def pack_value(value: Value) -> bytes:
    return bytes((value[0],)) + pack(value[1])


def pack_failure(failure: Failure) -> bytes:
    return pack_text(failure.code) + pack_text(failure.message) + pack(failure.detail)


def pack_outcome(outcome: Outcome) -> bytes:
    return b"\1" + pack_failure(outcome) if isinstance(outcome, Failure) else b"\0" + pack_value(outcome)


def unpack_outcome(data: bytes) -> Outcome:
    """An outcome by itself, as a noted step has it."""
    cursor = Cursor(data)
    outcome = cursor.outcome()
    cursor.end()
    return outcome


# -- from the server ------------------------------------------------------------------------------


def encode_start(start: Start) -> tuple[bytes, int]:
    """The payload and the flags of START."""
    parts = [
        _START_HEAD.pack(start.attempt, start.kind, start.deadline_ms, start.seen),
        pack_text(start.service),
        pack_text(start.handler),
        pack(start.key),
        pack_text(start.invocation),
        U64.pack(start.now_ms),
        start.seed,
        pack(start.input),
        U32.pack(len(start.fields)),
    ]
    for name, value in start.fields:
        parts += (pack(name), pack_value(value))
    return b"".join(parts), start.whole * WHOLE | start.declared * DECLARED


_KINDS = tuple(Kind)


def decode_start(payload: bytes, flags: int) -> Start:
    # Each call of a worker comes by here, so this reads the payload itself instead of through a Cursor.
    try:
        attempt, kind, deadline_ms, seen = _START_HEAD.unpack_from(payload)
        service, offset = _part(payload, _START_HEAD.size)
        handler, offset = _part(payload, offset)
        key, offset = _part(payload, offset)
        invocation, offset = _part(payload, offset)
        now_ms, seed = _START_MIDDLE.unpack_from(payload, offset)
        input, offset = _part(payload, offset + _START_MIDDLE.size)
        (count,) = U32.unpack_from(payload, offset)
        offset += 4
        fields = []
        for _ in range(count):
            name, offset = _part(payload, offset)
            form = payload[offset]
            if form > RAW:
                raise ProtocolError(f"unknown kind of value {form}")
            data, offset = _part(payload, offset + 1)
            fields.append((name, Value(form, data)))
        if offset != len(payload):
            raise ProtocolError("a payload has bytes left over")
        return Start(
            attempt,
            _KINDS[kind],
            deadline_ms,
            seen,
            str(service, "utf-8"),
            str(handler, "utf-8"),
            key,
            str(invocation, "utf-8"),
            now_ms,
            seed,
            input,
            tuple(fields),
            bool(flags & WHOLE),
            bool(flags & DECLARED),
        )
    except (struct.error, IndexError):
        raise ProtocolError("a payload is cut off, or of an unknown kind of handler") from None
    except UnicodeDecodeError:
        raise ProtocolError("a text is not UTF-8") from None


def _part(payload: bytes, offset: int) -> tuple[bytes, int]:
    """``bytes`` of the protocol at ``offset``, and the offset behind them."""
    (length,) = U32.unpack_from(payload, offset)
    offset += 4
    end = offset + length
    if end > len(payload):
        raise ProtocolError("a payload is cut off")
    return payload[offset:end], end


def encode_result(result: Result) -> bytes:
    return U32.pack(result.operation) + pack_outcome(result.outcome)


def decode_result(payload: bytes, flags: int) -> Result:
    cursor = Cursor(payload)
    result = Result(cursor.u32(), cursor.outcome(), bool(flags & IS_SET))
    cursor.end()
    return result


def encode_fields(fields: Fields) -> bytes:
    parts = [U32.pack(len(fields.fields))]
    for name, value in fields.fields:
        parts.append(pack(name))
        parts.append(b"\0" if value is None else b"\1" + pack_value(value))
    return b"".join(parts)


def decode_fields(payload: bytes, flags: int) -> Fields:
    cursor = Cursor(payload)
    fields = tuple([(cursor.bytes(), cursor.value() if cursor.flag() else None) for _ in range(cursor.u32())])
    cursor.end()
    return Fields(fields, bool(flags & VOID))


def decode_failure(payload: bytes) -> Failure:
    """The payload of CANCEL."""
    cursor = Cursor(payload)
    failure = cursor.failure()
    cursor.end()
    return failure


# -- from a worker --------------------------------------------------------------------------------


def operation(number: int, *parts: bytes) -> bytes:
    """The payload of an operation: its number, then each part with its length."""
    return U32.pack(number) + b"".join([pack(part) for part in parts])


def encode_scan(number: int, prefix: bytes, after: bytes | None, limit: int) -> bytes:
    behind = b"\0" if after is None else b"\1" + pack(after)
    return operation(number, prefix) + behind + U32.pack(limit)


def decode_scan_rows(data: bytes) -> list[tuple[bytes, Value]]:
    """The rows that the result of SCAN holds."""
    cursor = Cursor(data)
    rows = [(cursor.bytes(), cursor.value()) for _ in range(cursor.u32())]
    cursor.end()
    return rows


def encode_scan_rows(rows: Sequence[tuple[bytes, Value]]) -> bytes:
    return U32.pack(len(rows)) + b"".join([pack(name) + pack_value(value) for name, value in rows])


def encode_set(name: bytes, value: Value) -> bytes:
    return pack(name) + pack_value(value)


def encode_wait(number: int, name: str, timeout_ms: int | None) -> bytes:
    """The payload of WAIT, and that of AWAIT, whose text is the id of a workflow."""
    timeout = b"\0" if timeout_ms is None else b"\1" + U64.pack(timeout_ms)
    return operation(number, name.encode()) + timeout


def encode_suspend(operations: Iterable[int]) -> bytes:
    numbers = list(operations)
    return U32.pack(len(numbers)) + b"".join([U32.pack(number) for number in numbers])


def encode_failure(failure: Failure, trace: str) -> bytes:
    return pack_failure(failure) + pack_text(trace)


def encode_resumed(frames: int, checksum: int) -> bytes:
    return U32.pack(frames) + U32.pack(checksum)
