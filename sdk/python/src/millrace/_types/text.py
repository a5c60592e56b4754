"""JSON text as the server has it: UTF-8, no spaces, no NaN."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

_escape = json.encoder.encode_basestring
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_MAX_PLAIN_INT = 1 << 62


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined]
_SPACE = " \t\n\r"
# An integer of so many digits is one that every reader of JSON has exactly.
_QUICK_DIGITS = 15


def dumps(value: Any) -> bytes:
    """JSON text of a plain value. Raises ``ValueError`` or ``TypeError`` for what JSON cannot hold."""
    # Small scalars are most outputs and fields; the encoder's own set-up costs more than they do.
    kind = type(value)
    if kind is int and -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT:
        return b"%d" % value
    if value is None:
        return b"null"
    if kind is bool:
        return b"true" if value else b"false"
    if kind is str:
        return _escape(value).encode()
    return _encoder.encode(value).encode()


def loads(data: bytes) -> Any:
    """The plain value of JSON text. Raises ``ValueError`` for anything else."""
    if data == b"null" or not data:
        return None
    if len(data) <= _QUICK_DIGITS and data.isdigit() and (data[0] != 48 or len(data) == 1):
        return int(data)
    text = str(data, "utf-8")
    # The decoder's own `decode` skips space with regular expressions, which cost more than most inputs do.
    if text[0] in _SPACE:
        text = text.lstrip(_SPACE)
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("a value is expected") from None
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
    if end != len(text) and text[end:].strip(_SPACE):
        raise ValueError(f"something follows the value, at character {end}")
    return value
