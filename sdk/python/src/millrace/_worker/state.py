"""The fields of one entity, as one attempt sees them.

Writes are buffered here and leave as SET and DELETE right before what could see them. Reads are answered
from here where the worker knows the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .._protocol.payloads import Fields, Start, Value
from .._types import Mismatch, Type, dumps, loads
from ..errors import TypeMismatch, UsageError


class _Unknown:
    """Only the server knows."""


UNKNOWN: Final = _Unknown()


def encode(type: Type, value: Any, name: str) -> Value:
    """What is stored for a typed value."""
    if type.raw and isinstance(value, (bytes, bytearray, memoryview)):
        return Value(1, bytes(value))
    try:
        return Value(0, dumps(type.dump(value)))
    except Mismatch as mismatch:
        raise TypeMismatch(mismatch.told(name)) from None
    except (TypeError, ValueError) as error:
        raise TypeMismatch(f"{name} cannot be stored: {error}") from None


def decode(type: Type, value: Value, name: str) -> Any:
    """The typed value of what is stored."""
    kind, data = value
    if kind == 1:
        if type.raw or type.__class__ is Type:
            return data
        raise TypeMismatch(f"{name} is stored as bytes")
    try:
        return type.load(loads(data), False)
    except Mismatch as mismatch:
        raise TypeMismatch(mismatch.told(name)) from None


class State:
    """Known fields, buffered writes, and the typed values that handlers have in hand."""

    def __init__(self, start: Start, declared: frozenset[bytes], read_only: bool) -> None:
        self._known: dict[bytes, Value | None] = dict(start.fields)
        self._whole = start.whole
        self._declared_known = start.declared or start.whole
        self._declared = declared
        self._pending: dict[bytes, Value | None] = {}
        # Typed values by attribute; and of those that may have changed, what was last seen of them.
        self.values: dict[str, Any] = {}
        self._tracked: dict[str, tuple[bytes, Type]] = {}
        self._baseline: dict[str, Value | None] = {}
        self.read_only = read_only
        self.stale = False

    # -- raw values -------------------------------------------------------------------------------

    def lookup(self, name: bytes) -> Value | _Unknown | None:
        """A field's value, ``None`` if it is not set, ``UNKNOWN`` if only the server knows."""
        try:
            return self._known[name]
        except KeyError:
            if self._whole or (self._declared_known and name in self._declared):
                return None
            return UNKNOWN

    def learn(self, name: bytes, value: Value | None) -> None:
        """Notes what the server says of a field, unless this attempt has written it since."""
        if name not in self._pending:
            self._known[name] = value

    def write(self, name: bytes, value: Value | None) -> None:
        if self.read_only:
            raise UsageError("a query only reads: make the handler a transaction to write")
        self._pending.pop(name, None)
        self._pending[name] = value
        self._known[name] = value

    def scan(self, prefix: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, Value]] | None:
        """A page of fields, if all fields are known here."""
        if not self._whole:
            return None
        names = [
            name
            for name, value in self._known.items()
            if value is not None and name.startswith(prefix) and (after is None or name > after)
        ]
        names.sort()
        return [(name, value) for name in names[:limit] if (value := self._known[name]) is not None]

    def missing(self) -> list[bytes]:
        """Declared fields that have to be asked for before a handler can read them without waiting."""
        if self._declared_known:
            return []
        return sorted([name for name in self._declared if name not in self._known])

    def declared_are_known(self) -> None:
        self._declared_known = True
        self.stale = False

    def apply(self, fields: Fields) -> None:
        """Takes what others of this transaction have written meanwhile. Nothing is pending then."""
        self.settle()
        if fields.void:
            self._known.clear()
            self._whole = False
            self._declared_known = False
            self.stale = True
            self._forget(list(self.values))
        changed = dict(fields.fields)
        self._known.update(changed)
        tracked = self._tracked
        # Values that are not tracked are copies of what was known: reading them again costs little.
        self._forget([name for name in self.values if name not in tracked or tracked[name][0] in changed])

    def _forget(self, attributes: list[str]) -> None:
        for attribute in attributes:
            self.values.pop(attribute, None)
            self._tracked.pop(attribute, None)
            self._baseline.pop(attribute, None)

    # -- typed values -----------------------------------------------------------------------------

    def assign(self, attribute: str, name: bytes, type: Type, value: Any) -> None:
        if self.read_only:
            raise UsageError(f"a query only reads: {attribute} cannot be written here")
        if attribute not in self._baseline:
            known = self.lookup(name)
            self._baseline[attribute] = None if isinstance(known, _Unknown) else known
        self.values[attribute] = value
        self._tracked[attribute] = (name, type)

    def hand_out(self, attribute: str, name: bytes, type: Type, value: Any, baseline: Value | None) -> None:
        """Keeps a value that a handler reads. What it may change in place is compared at the end."""
        self.values[attribute] = value
        self._tracked[attribute] = (name, type)
        self._baseline[attribute] = baseline

    def remove(self, attribute: str, name: bytes) -> None:
        self.write(name, None)
        if attribute in self.values:
            self._forget([attribute])

    def settle(self) -> None:
        """Turns changed typed values into buffered writes."""
        for attribute, (name, type) in self._tracked.items():
            value = encode(type, self.values[attribute], attribute)
            if value != self._baseline[attribute]:
                if self.read_only:
                    raise UsageError(f"a query only reads: {attribute} was changed in place")
                self._baseline[attribute] = value
                self.write(name, value)

    def flush(self, emit_set: Callable[[bytes, Value], None], emit_delete: Callable[[bytes], None]) -> None:
        """Hands all buffered writes over, in the order they were made."""
        if self._tracked:
            self.settle()
        if self._pending:
            for name, value in self._pending.items():
                if value is None:
                    emit_delete(name)
                else:
                    emit_set(name, value)
            self._pending.clear()
