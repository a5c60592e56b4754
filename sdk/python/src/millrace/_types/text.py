"""JSON text as the server has it: UTF-8, no spaces, no NaN."""

from __future__ import annotations

import json
from typing import Any, NoReturn

_escape = json.encoder.encode_basestring
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_MAX_PLAIN_INT = 1 << 62


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse)


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
    try:
        return _decoder.decode(str(data, "utf-8"))
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
