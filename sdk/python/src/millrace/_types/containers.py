"""Types made of others: lists, tuples, sets, dicts, unions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .base import Mismatch, Type


class Items(Type):
    """A list, a set or a tuple of any length."""

    def __init__(self, item: Type, make: Callable[[Iterable[Any]], Any], kinds: Any) -> None:
        self._item = item
        self._make = make
        self._kinds = kinds
        self.plain = make is list and item.plain
        self.mutable = make is not tuple or item.mutable

    def load(self, value: Any, strict: bool) -> Any:
        if type(value) is not list:
            raise Mismatch("a list", value)
        loaded = self._each(value, lambda item: self._item.load(item, strict))
        return loaded if self._make is list else self._make(loaded)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._kinds):
            raise Mismatch(f"a {self._kinds[0].__name__}", value)
        dumped = self._each(value, self._item.dump)
        if isinstance(value, (set, frozenset)):
            # Two equal sets may iterate differently, and a stored text must not change by itself.
            dumped.sort(key=repr)
        return dumped

    def _each(self, values: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
        converted = []
        for index, value in enumerate(values):
            try:
                converted.append(convert(value))
            except Mismatch as mismatch:
                raise mismatch.within(index) from None
        return converted

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        described: dict[str, Any] = {"type": "array", "items": self._item.schema(definitions)}
        if set in self._kinds:
            described["uniqueItems"] = True
        return described


class Tuple(Type):
    """A tuple of a fixed length, each place with its type; JSON has it as an array."""

    plain = False

    def __init__(self, items: list[Type], make: Callable[..., Any] | None = None) -> None:
        self._items = items
        self._make = make
        self.mutable = any(item.mutable for item in items)

    def _check(self, value: Any, kinds: Any) -> None:
        if not isinstance(value, kinds) or len(value) != len(self._items):
            raise Mismatch(f"{len(self._items)} values", value)

    def load(self, value: Any, strict: bool) -> Any:
        self._check(value, list)
        loaded = [self._one(index, item.load, value[index], strict) for index, item in enumerate(self._items)]
        return self._make(*loaded) if self._make else tuple(loaded)

    def dump(self, value: Any) -> Any:
        self._check(value, (tuple, list))
        return [self._one(index, item.dump, value[index]) for index, item in enumerate(self._items)]

    def _one(self, index: int, convert: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return convert(*arguments)
        except Mismatch as mismatch:
            raise mismatch.within(index) from None

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        count = len(self._items)
        return {
            "type": "array",
            "prefixItems": [item.schema(definitions) for item in self._items],
            "minItems": count,
            "maxItems": count,
        }


class Dict(Type):
    """An object whose members all have one type. Keys that are not texts go through their text form."""

    def __init__(self, key: Type | None, value: Type) -> None:
        self._key = key
        self._value = value
        self.plain = key is None and value.plain

    def load(self, value: Any, strict: bool) -> Any:
        if type(value) is not dict:
            raise Mismatch("an object", value)
        loaded = {}
        for name, member in value.items():
            try:
                key = name if self._key is None else self._key.load(name, strict)
                loaded[key] = self._value.load(member, strict)
            except Mismatch as mismatch:
                raise mismatch.within(name) from None
        return loaded

    def dump(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch("a dict", value)
        dumped = {}
        for key, member in value.items():
            try:
                if self._key is not None:
                    key = self._key.dump(key)
                elif not isinstance(key, str):
                    raise Mismatch("a text as key", key)
                dumped[key] = self._value.dump(member)
            except Mismatch as mismatch:
                raise mismatch.within(str(key)) from None
        return dumped

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self._value.schema(definitions)}


class IntegerKey(Type):
    """An integer as the name of an object's member."""

    mutable = False
    plain = False

    def load(self, value: Any, strict: bool) -> Any:
        try:
            return int(value)
        except ValueError:
            raise Mismatch("an integer as key", value) from None

    def dump(self, value: Any) -> Any:
        if type(value) is not int:
            raise Mismatch("an integer as key", value)
        return str(value)


class Union(Type):
    """The first of several types that fits. Order them from the narrow to the wide."""

    def __init__(self, members: list[Type]) -> None:
        self._members = members
        self.plain = all(member.plain for member in members)
        self.mutable = any(member.mutable for member in members)

    def _first(self, convert: Callable[[Type], Any], value: Any) -> Any:
        deepest: Mismatch | None = None
        expected = []
        for member in self._members:
            try:
                return convert(member)
            except Mismatch as mismatch:
                expected.append(mismatch.expected)
                if len(mismatch.place) > (len(deepest.place) if deepest else 0):
                    deepest = mismatch
        # A member that failed further inside is what was meant: its place says more.
        if deepest is not None:
            raise deepest
        raise Mismatch(" or ".join(dict.fromkeys(expected)), value)

    def load(self, value: Any, strict: bool) -> Any:
        return self._first(lambda member: member.load(value, strict), value)

    def dump(self, value: Any) -> Any:
        return self._first(lambda member: member.dump(value), value)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [member.schema(definitions) for member in self._members]}
