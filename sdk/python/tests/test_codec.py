"""Frames and payloads: what goes in comes out, and whatever is wrong is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._protocol import frames, payloads
from millrace._protocol.frames import ProtocolError, Type
from millrace._protocol.payloads import Failure, Fields, Kind, Result, Start, Value

GOLDEN = Path(__file__).parents[2] / "protocol" / "golden"

names = st.binary(max_size=20)
values = st.builds(Value, st.integers(0, 1), st.binary(max_size=50))
failures = st.builds(Failure, st.text(max_size=9), st.text(max_size=9), st.binary(max_size=9))
outcomes = st.one_of(values, failures)
starts = st.builds(
    Start,
    attempt=st.binary(min_size=16, max_size=16),
    kind=st.sampled_from(Kind),
    deadline_ms=st.integers(0, 2**32 - 1),
    seen=st.integers(0, 2**32 - 1),
    service=st.text(max_size=9),
    handler=st.text(max_size=9),
    key=names,
    invocation=st.text(max_size=9),
    now_ms=st.integers(0, 2**64 - 1),
    seed=st.binary(min_size=16, max_size=16),
    input=st.binary(max_size=50),
    fields=st.lists(st.tuples(names, values), max_size=4).map(tuple),
    whole=st.booleans(),
    declared=st.booleans(),
)


@given(starts)
def test_start_comes_out_as_it_went_in(start: Start) -> None:
    assert payloads.decode_start(*payloads.encode_start(start)) == start


@given(st.integers(0, 2**32 - 1), outcomes, st.booleans())
def test_results_come_out_as_they_went_in(number: int, outcome: Any, is_set: bool) -> None:
    result = Result(number, outcome, is_set)
    assert payloads.decode_result(payloads.encode_result(result), int(is_set)) == result


@given(st.lists(st.tuples(names, st.none() | values), max_size=4).map(tuple), st.booleans())
def test_fields_come_out_as_they_went_in(given_fields: Any, void: bool) -> None:
    fields = Fields(given_fields, void)
    assert payloads.decode_fields(payloads.encode_fields(fields), int(void)) == fields


@given(st.lists(st.tuples(names, values), max_size=5))
def test_scan_rows_come_out_as_they_went_in(rows: Any) -> None:
    assert payloads.decode_scan_rows(payloads.encode_scan_rows(rows)) == rows


@given(
    st.lists(st.tuples(st.sampled_from(Type), st.binary(max_size=40), st.integers(0, 2**32 - 1)), max_size=6), st.data()
)
def test_frames_survive_any_cut(parts: Any, data: st.DataObject) -> None:
    body = b"".join([frames.encode(type, payload, 0, stream) for type, payload, stream in parts])
    reader = frames.Reader()
    got = []
    while body:
        cut = data.draw(st.integers(1, len(body)))
        got += reader.feed(body[:cut])
        body = body[cut:]
    assert [(frame.type, frame.payload, frame.stream) for frame in got] == parts


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    for decode in (
        frames.decode_all,
        lambda data: payloads.decode_start(data, 0),
        lambda data: payloads.decode_result(data, 0),
        lambda data: payloads.decode_fields(data, 0),
        payloads.decode_failure,
        payloads.decode_scan_rows,
        payloads.unpack_outcome,
    ):
        try:
            decode(data)  # type: ignore[operator]
        except ProtocolError:
            pass


@given(starts, st.data())
def test_a_cut_start_is_refused(start: Start, data: st.DataObject) -> None:
    payload, flags = payloads.encode_start(start)
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(ProtocolError):
        payloads.decode_start(payload[:cut], flags)
    with pytest.raises(ProtocolError):
        payloads.decode_start(payload + b"x", flags)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"\0\x80\0\1\x01\0\0\0\0\0\0\0", "longer than"),
        (b"\0\0\0\0\x7f\0\0\0\0\0\0\0", "unknown type"),
        (b"\0\0\0\0\x33\x01\0\0\0\0\0\0", "must be zero"),
        (b"\0\0\0\0\x33\0\0\x01\0\0\0\0", "must be zero"),
        (b"\0\0\0\1\x33\0\0\0\0\0\0\0", "cut off"),
        (b"\0\0\0", "cut off"),
    ],
)
def test_wrong_headers_are_named(header: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        frames.decode_all(header)


def test_a_payload_beyond_the_limit_is_not_sent() -> None:
    with pytest.raises(ProtocolError):
        frames.encode(Type.LOG, bytes(frames.PAYLOAD_LIMIT_BYTES + 1))


# -- the bytes that all languages share -----------------------------------------------------------


def content(given: Any) -> bytes:
    if isinstance(given, str):
        return given.encode()
    return bytes.fromhex(given["hex"]) if "hex" in given else given["text"].encode()


def value(given: Any) -> Value:
    return Value({"json": 0, "raw": 1}[given["kind"]], content(given["content"]))


def failure(given: Any) -> Failure:
    return Failure(given["code"], given["message"], content(given["detail"]))


def outcome(given: Any) -> Any:
    return failure(given["error"]) if "error" in given else value(given.get("value", given))


def golden_payload(frame: str, f: Any) -> tuple[bytes, int]:
    """The payload and the flags that this package writes for what a golden file describes."""
    number = f.get("operation", 0)
    four = number.to_bytes(4, "big")
    match frame:
        case "START":
            texts = {name: f[name] for name in ("service", "handler", "invocation")}
            return payloads.encode_start(
                Start(
                    attempt=bytes.fromhex(f["attempt"]),
                    kind=Kind(f["kind"]),
                    deadline_ms=f["deadline_ms"],
                    seen=f["seen"],
                    key=content(f["key"]),
                    now_ms=f["now_ms"],
                    seed=bytes.fromhex(f["seed"]),
                    input=content(f["input"]),
                    fields=tuple([(content(name), value(given)) for name, given in f["fields"]]),
                    whole=f["whole"],
                    declared=f["declared"],
                    **texts,
                )
            )
        case "RESULT":
            is_set = bool(f.get("set", f.get("is_set", False)))
            return payloads.encode_result(Result(number, outcome(f["result"]), is_set)), int(is_set)
        case "CANCEL":
            return payloads.pack_failure(failure(f["error"])), 0
        case "PING" | "HEARTBEAT" | "DRAIN":
            return b"", 0
        case "READY":
            return payloads.pack_text(f["deployment"]), 0
        case "HELLO":
            return payloads.pack(content(f["discovery"])), 0
        case "GET":
            return payloads.operation(number, content(f["field"])), 0
        case "SCAN":
            after = None if f["after"] is None else content(f["after"])
            return payloads.encode_scan(number, content(f["prefix"]), after, f["limit"]), 0
        case "SET":
            return payloads.encode_set(content(f["field"]), value(f["value"])), 0
        case "DELETE":
            return payloads.pack(content(f["field"])), 0
        case "CALL" | "SEND" | "COMPENSATE":
            target = f["target"]
            parts = [content(target[name]) for name in ("service", "key", "handler", "input")]
            if frame == "COMPENSATE":
                return b"".join([payloads.pack(part) for part in parts]), 0
            if frame == "CALL":
                policy = [content(f["policy"])] if "policy" in f else []
                return payloads.operation(number, *parts, *policy), len(policy)
            behind = payloads.U64.pack(f["delay_ms"]) + (payloads.pack_text(f["id"]) if "id" in f else b"")
            return payloads.operation(number, *parts) + behind, int("id" in f)
        case "SIGNAL":
            return b"".join([payloads.pack(content(f[name])) for name in ("invocation", "name", "payload")]), 0
        case "FETCH":
            return payloads.operation(number, content(f["request"])), 0
        case "SLEEP":
            return four + payloads.U64.pack(f["delay_ms"]), 0
        case "WAIT":
            return payloads.encode_wait(number, f["name"], f["timeout_ms"]), 0
        case "AWAIT":
            return payloads.encode_wait(number, f["invocation"], f["timeout_ms"]), 0
        case "STEP":
            return payloads.operation(number, content(f["name"]), content(f["policy"])), 0
        case "STEP_END":
            return four + payloads.pack_outcome(outcome(f["result"])), 0
        case "RECORD":
            return payloads.operation(number, content(f["type"]), content(f["id"]), content(f["request"])), 0
        case "OBJECT":
            parts = [f["bucket"].encode(), f["key"].encode(), content(f["request"]), content(f["body"])]
            return payloads.operation(number, *parts), 0
        case "LOG":
            levels = {"debug": 0, "info": 1, "warn": 2, "error": 3}
            level = levels.get(f["level"], f["level"])
            return bytes((level,)) + payloads.pack_text(f["line"]), 0
        case "OUTPUT":
            return payloads.pack_value(value(f["value"])), 0
        case "FAILURE":
            return payloads.encode_failure(failure(f["error"]), f["trace"]), int(f["terminal"])
        case "SUSPEND":
            return payloads.encode_suspend(f["operations"]), 0
        case "RESUMED":
            return payloads.encode_resumed(f["frames"], f["checksum"] if "checksum" in f else f["crc32"]), 0
        case "FIELDS":
            given = tuple([(content(n), None if v is None else value(v)) for n, v in f["fields"]])
            return payloads.encode_fields(Fields(given, f["rest_void"])), int(f["rest_void"])
    raise AssertionError(f"no such frame: {frame}")


def golden_files() -> list[Path]:
    return sorted(GOLDEN.glob("*.json"))


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_golden_bytes(path: Path) -> None:
    described = json.loads(path.read_text())
    data = path.with_suffix(".bin").read_bytes()
    if "refused" in described:
        with pytest.raises(ProtocolError):
            decode_payloads(data)
        return
    payload, flags = golden_payload(described["frame"], described["fields"])
    frame = frames.decode_all(data)[0]
    assert (frame.type.name, frame.flags, frame.payload) == (described["frame"], flags, payload)
    assert frames.encode(frame.type, payload, flags, frame.stream) == data


def decode_payloads(data: bytes) -> None:
    for frame in frames.decode_all(data):
        decode_payload(frame)


def decode_payload(frame: frames.Frame) -> None:
    """Decodes what this package decodes of the server's frames, and as much of a worker's."""
    cursor = payloads.Cursor(frame.payload)
    match frame.type:
        case Type.START:
            payloads.decode_start(frame.payload, frame.flags)
        case Type.RESULT:
            payloads.decode_result(frame.payload, frame.flags)
        case Type.SET:
            cursor.bytes(), cursor.value(), cursor.end()
        case Type.OUTPUT:
            cursor.value(), cursor.end()
        case Type.LOG:
            cursor.u8(), cursor.text(), cursor.end()
        case Type.GET:
            cursor.u32(), cursor.bytes(), cursor.end()
        case _:
            payloads.decode_failure(frame.payload)
