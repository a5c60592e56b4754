"""Frames: a header of 12 bytes and a payload.

The layout is that of ``docs/internals/worker-protocol.md``. Decoding never trusts a length: whatever is
wrong raises :class:`ProtocolError`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct(">IBBHI")
HEADER_BYTES = HEADER.size

# The server's memory bounds it: one value and its names.
PAYLOAD_LIMIT_BYTES = 8 * 1024 * 1024

CONTENT_TYPE = "application/vnd.millrace.worker"
# The newest version of the protocol that this worker speaks, and the oldest.
VERSION = 5
OLDEST_VERSION = 1


class Type(IntEnum):
    """Types of frames. Those below 0x20 come from the server."""

    START = 0x01
    RESULT = 0x02
    CANCEL = 0x03
    PING = 0x04
    READY = 0x05
    FIELDS = 0x06
    GET = 0x20
    SCAN = 0x21
    SET = 0x22
    DELETE = 0x23
    CALL = 0x24
    SEND = 0x25
    SIGNAL = 0x26
    FETCH = 0x27
    SLEEP = 0x28
    WAIT = 0x29
    STEP = 0x2A
    STEP_END = 0x2B
    COMPENSATE = 0x2C
    RECORD = 0x2D
    LOG = 0x2E
    AWAIT = 0x2F
    OUTPUT = 0x30
    FAILURE = 0x31
    SUSPEND = 0x32
    HEARTBEAT = 0x33
    RESUMED = 0x34
    HELLO = 0x35
    OBJECT = 0x36
    DRAIN = 0x37


# Flag bits that have a meaning; all others must be zero.
FLAGS = {Type.START: 0b11, Type.RESULT: 0b1, Type.FIELDS: 0b1, Type.CALL: 0b1, Type.SEND: 0b1, Type.FAILURE: 0b1}
_TYPES = {int(member): member for member in Type}


class ProtocolError(Exception):
    """Bytes that are not what the protocol says."""


class Frame(NamedTuple):
    """One frame. ``stream`` is 0 where a connection or request carries one attempt."""

    type: Type
    flags: int
    stream: int
    payload: bytes


def encode(type: int, payload: bytes, flags: int = 0, stream: int = 0) -> bytes:
    """The bytes of one frame."""
    if len(payload) > PAYLOAD_LIMIT_BYTES:
        raise ProtocolError(f"a frame holds {PAYLOAD_LIMIT_BYTES} bytes at most, not {len(payload)}")
    return HEADER.pack(len(payload), type, flags, 0, stream) + payload


def decode(data: bytes | bytearray, offset: int = 0) -> tuple[Frame, int] | None:
    """The frame at ``offset`` and the offset behind it; ``None`` while bytes are missing."""
    end = offset + HEADER_BYTES
    if len(data) < end:
        return None
    length, number, flags, zero, stream = HEADER.unpack_from(data, offset)
    # The header is judged before its payload is awaited: a wrong length must not make a reader wait.
    if length > PAYLOAD_LIMIT_BYTES:
        raise ProtocolError(f"a frame of {length} bytes is longer than {PAYLOAD_LIMIT_BYTES}")
    kind = _TYPES.get(number)
    if kind is None:
        raise ProtocolError(f"unknown type of frame 0x{number:02x}")
    if zero or flags & ~FLAGS.get(kind, 0):
        raise ProtocolError(f"{kind.name} has bits set that must be zero")
    if len(data) < end + length:
        return None
    return Frame(kind, flags, stream, bytes(data[end : end + length])), end + length


def decode_all(data: bytes) -> list[Frame]:
    """All frames of a body. Bytes left over are an error."""
    frames = []
    offset = 0
    while offset < len(data):
        decoded = decode(data, offset)
        if decoded is None:
            raise ProtocolError("the last frame is cut off")
        frame, offset = decoded
        frames.append(frame)
    return frames


class Reader:
    """Frames of a connection, as its bytes come in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Takes some bytes; gives the frames that are complete now."""
        self._buffer += data
        frames = []
        offset = 0
        while (decoded := decode(self._buffer, offset)) is not None:
            frame, offset = decoded
            frames.append(frame)
        del self._buffer[:offset]
        return frames
