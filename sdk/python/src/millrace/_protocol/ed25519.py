"""Verifies signatures of Ed25519 (RFC 8032), in Python alone: no part of this package is compiled.

Nothing here is secret, so the time that it takes may tell of the values. It signs nothing.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

_P = 2**255 - 19
# The order of the base point.
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_2D = 2 * _D % _P
_SQRT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)

# A point (x, y) as (X, Y, Z, T). There x is X / Z, y is Y / Z, and x * y is T / Z.
_Point = tuple[int, int, int, int]
_NEUTRAL: _Point = (0, 1, 1, 0)

# For each digit of a number of 253 bits in base 64, the least first, the points that it may stand for.
_Table = Sequence[Sequence[_Point]]
_DIGIT_BITS = 6
_DIGITS = 43
_MASK = 2**_DIGIT_BITS - 1


def _add(one: _Point, other: _Point) -> _Point:
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = other
    a = (y1 - x1) * (y2 - x2) % _P
    b = (y1 + x1) * (y2 + x2) % _P
    c = t1 * t2 % _P * _2D % _P
    d = 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _decode(data: bytes) -> _Point | None:
    """The point of 32 bytes, if they are one."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(data) != 32 or y >= _P:
        return None
    squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(squared, (_P + 3) // 8, _P)
    if x * x % _P != squared:
        x = x * _SQRT_OF_MINUS_1 % _P
    if x * x % _P != squared or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _encode(point: _Point) -> bytes:
    x, y, z, _ = point
    inverse = pow(z, -1, _P)
    x, y = x * inverse % _P, y * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _table_of(point: _Point) -> _Table:
    table = []
    for _ in range(_DIGITS):
        row = [_NEUTRAL]
        for _ in range(_MASK):
            row.append(_add(row[-1], point))
        table.append(row)
        point = _add(row[-1], point)
    return table


@functools.cache
def _table_of_base() -> _Table:
    base = _decode((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    assert base is not None
    return _table_of(base)


class PublicKey:
    """A public key, which says whether a signature is one of its private key."""

    def __init__(self, key: bytes) -> None:
        point = _decode(key)
        if point is None:
            raise ValueError("the 32 bytes are no public key of Ed25519")
        self._key = key
        x, y, z, t = point
        self._negated = _table_of((_P - x, y, z, _P - t))

    def verifies(self, signature: bytes, message: bytes) -> bool:
        if len(signature) != 64:
            return False
        commitment, scalar = signature[:32], int.from_bytes(signature[32:], "little")
        if scalar >= _ORDER:
            return False
        challenge = int.from_bytes(hashlib.sha512(commitment + self._key + message).digest(), "little") % _ORDER
        point = _NEUTRAL
        for of_base, negated in zip(_table_of_base(), self._negated, strict=True):
            point = _add(_add(point, of_base[scalar & _MASK]), negated[challenge & _MASK])
            scalar, challenge = scalar >> _DIGIT_BITS, challenge >> _DIGIT_BITS
        return _encode(point) == commitment
