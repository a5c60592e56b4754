"""The base of all types, scalars and what JSON has of its own."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

_SHOWN_CHARACTERS = 40

#: What a :class:`Mismatch` got where there is no value at all.
MISSING = object()


class Mismatch(Exception):
    """A value is not of a type. ``place`` grows from the inside out as the error passes containers."""

    def __init__(self, expected: str, got: Any) -> None:
        super().__init__(expected)
        self.expected = expected
        self.got = got
        self.place: list[str | int] = []

    def within(self, part: str | int) -> Mismatch:
        self.place.append(part)
        return self

    def told(self, root: str) -> str:
        """The sentence for a person, such as ``input.items[3]: expected an integer, got "x"``."""
        path = root
        for part in reversed(self.place):
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
        if self.got is MISSING:
            return f"{path} is missing"
        shown = repr(self.got)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[:_SHOWN_CHARACTERS] + "…"
        return f"{path}: expected {self.expected}, got {shown}"


class Type:
    """Any JSON value, as it is. Subclasses narrow it."""

    #: Whether a value may change after it was handed out, so that writes are found by comparing.
    mutable = True
    #: Whether plain and typed values are the same objects.
    plain = True
    #: Raw bytes instead of JSON text, where a field holds the value itself.
    raw = False

    def load(self, value: Any, strict: bool) -> Any:
        """The typed value of a plain one. ``strict`` refuses unknown members: inputs are, stored values are not."""
        return value

    def dump(self, value: Any) -> Any:
        """The plain value of a typed one."""
        return value

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        """The JSON schema. Named parts go to ``definitions``."""
        return {}


class Scalar(Type):
    """A type of JSON whose values Python has as they are."""

    mutable = False

    def __init__(self, kinds: tuple[type, ...], expected: str, schema: dict[str, Any]) -> None:
        self._kinds = kinds
        self._expected = expected
        self._schema = schema

    def load(self, value: Any, strict: bool) -> Any:
        # By identity of the type: True is no integer.
        if type(value) in self._kinds:
            return value
        return self.narrow(value)

    def dump(self, value: Any) -> Any:
        if type(value) in self._kinds:
            return value
        return self.narrow(value)

    def narrow(self, value: Any) -> Any:
        for kind in self._kinds:
            if isinstance(value, kind) and not isinstance(value, bool):
                return value
        raise Mismatch(self._expected, value)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return dict(self._schema)


class Integer(Scalar):
    def __init__(self) -> None:
        super().__init__((int,), "an integer", {"type": "integer"})

    def narrow(self, value: Any) -> Any:
        # JSON has one kind of number: 5.0 is an integer there, and JSON Schema says so too.
        if type(value) is float and value.is_integer():
            return int(value)
        return super().narrow(value)


class Number(Scalar):
    def __init__(self) -> None:
        super().__init__((float, int), "a number", {"type": "number"})

    def dump(self, value: Any) -> Any:
        if type(value) is float and not math.isfinite(value):
            raise Mismatch("a finite number", value)
        return super().dump(value)


class Null(Scalar):
    def __init__(self) -> None:
        super().__init__((type(None),), "null", {"type": "null"})


class Bytes(Type):
    """Raw bytes in a field; base64 within JSON."""

    mutable = False
    plain = False
    raw = True

    def load(self, value: Any, strict: bool) -> Any:
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise Mismatch("bytes in base64", value) from None

    def dump(self, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise Mismatch("bytes", value)
        return base64.b64encode(value).decode()

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "string", "contentEncoding": "base64"}


class Converted(Type):
    """A type that has a text form: a date, a UUID, a decimal."""

    mutable = False
    plain = False

    def __init__(
        self,
        kind: type,
        expected: str,
        schema: dict[str, Any],
        parse: Callable[[str], Any],
        format: Callable[[Any], str] = str,
    ) -> None:
        self._kind = kind
        self._expected = expected
        self._schema = schema
        self._parse = parse
        self._format = format

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, str):
            raise Mismatch(self._expected, value)
        try:
            return self._parse(value)
        except (ValueError, ArithmeticError):
            raise Mismatch(self._expected, value) from None

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise Mismatch(self._expected, value)
        return self._format(value)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return dict(self._schema)


class Choice(Type):
    """One of some values: an ``Enum`` or a ``Literal``."""

    mutable = False

    def __init__(self, members: list[tuple[Any, Any]], plain: bool) -> None:
        self._members = members
        self.plain = plain
        self._expected = "one of " + ", ".join([repr(value) for value, _ in members])

    def _find(self, value: Any, position: int) -> Any:
        for member in self._members:
            known = member[position]
            if known == value and type(known) is type(value):
                return member[1 - position]
        raise Mismatch(self._expected, value)

    def load(self, value: Any, strict: bool) -> Any:
        return self._find(value, 0)

    def dump(self, value: Any) -> Any:
        return self._find(value, 1)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"enum": [plain for plain, _ in self._members]}
