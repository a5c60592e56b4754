"""Fields that are read and written item by item, and never travel whole: ``Lazy``, ``Map``, ``List``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from ._protocol.payloads import Value
from ._types import Type, type_of
from ._worker.state import _Unknown, decode, encode
from .errors import UsageError

if TYPE_CHECKING:
    from ._worker.attempt import Attempt
    from .fields import ItemsField

K = TypeVar("K", str, int)
T = TypeVar("T")
D = TypeVar("D")

# What one scan answers at most, and what a loop asks for at a time.
_PAGE = 500
_INDEX_DIGITS = 12
_KEY_DIGITS = 19
_LENGTH: Type = type_of(int)


class _View:
    """One entity's items, as the attempt that runs on it sees them."""

    declared: ClassVar[bool] = False

    def __init__(self, attempt: Attempt, field: ItemsField) -> None:
        self._attempt = attempt
        self._field = field

    @staticmethod
    def types_of(arguments: tuple[Any, ...]) -> tuple[Type, ...]:
        return (type_of(arguments[0] if arguments else Any),)

    @property
    def _type(self) -> Type:
        return self._field.types[-1]

    def _encode(self, value: Any) -> Value:
        return encode(self._type, value, self._field.attribute)

    def _decode(self, value: Value) -> Any:
        return decode(self._type, value, self._field.attribute)

    def _write(self, name: bytes, value: Value | None) -> None:
        self._attempt.state_of_entity().write(name, value)


class Lazy(_View, Generic[T]):
    """A large value that is fetched when it is asked for: ``photo = await self.photo``."""

    def __await__(self) -> Generator[Any, None, T | None]:
        return self.get().__await__()

    async def get(self) -> T | None:
        """The value; ``None`` if it is not set."""
        stored = await self._attempt.get(self._field.name)
        return None if stored is None else self._decode(stored)

    def set(self, value: T) -> None:
        self._write(self._field.name, self._encode(value))

    def delete(self) -> None:
        self._write(self._field.name, None)


class Map(_View, Generic[K, T]):
    """Items by key, ordered by key: each is a field of its own.

    Keys are texts, or integers from 0. Writing waits for nothing; reading is awaited.
    """

    @staticmethod
    def types_of(arguments: tuple[Any, ...]) -> tuple[Type, ...]:
        key, value = arguments or (str, Any)
        if key not in (str, int):
            raise TypeError("the keys of a Map are str or int")
        return type_of(key), type_of(value)

    @property
    def _prefix(self) -> bytes:
        return self._field.name + b"/"

    def _name(self, key: K) -> bytes:
        return self._prefix + self._key_text(key).encode()

    def _key_text(self, key: K) -> str:
        if self._field.types[0] is _LENGTH:
            # Leading zeros, because fields are ordered by the bytes of their names.
            if type(key) is not int or key < 0:
                raise UsageError(f"{self._field.attribute}: keys are integers from 0, not {key!r}")
            return f"{key:0{_KEY_DIGITS}d}"
        if not isinstance(key, str):
            raise UsageError(f"{self._field.attribute}: keys are texts, not {key!r}")
        return key

    def _key_of(self, name: bytes) -> K:
        text = name[len(self._prefix) :].decode()
        return int(text) if self._field.types[0] is _LENGTH else text  # type: ignore[return-value]

    @overload
    async def get(self, key: K) -> T | None: ...
    @overload
    async def get(self, key: K, default: D) -> T | D: ...
    async def get(self, key: K, default: Any = None) -> Any:
        stored = await self._attempt.get(self._name(key))
        return default if stored is None else self._decode(stored)

    async def contains(self, key: K) -> bool:
        return await self._attempt.get(self._name(key)) is not None

    def set(self, key: K, value: T) -> None:
        self._write(self._name(key), self._encode(value))

    def delete(self, key: K) -> None:
        """Removes an item. It need not be there."""
        self._write(self._name(key), None)

    __setitem__ = set
    __delitem__ = delete

    async def pop(self, key: K) -> T | None:
        """Removes an item and gives it; ``None`` if it was not there."""
        value = await self.get(key)
        if value is not None:
            self.delete(key)
        return value

    async def page(self, *, prefix: str = "", after: K | None = None, limit: int = _PAGE) -> list[tuple[K, T]]:
        """Items in order: those whose key starts with ``prefix``, behind ``after``, at most ``limit``."""
        behind = None if after is None else self._name(after)
        rows = await self._attempt.scan(self._prefix + prefix.encode(), behind, limit)
        return [(self._key_of(name), self._decode(value)) for name, value in rows]

    async def items(self, *, prefix: str = "", after: K | None = None) -> AsyncIterator[tuple[K, T]]:
        """All items in order, fetched page by page."""
        while True:
            rows = await self.page(prefix=prefix, after=after)
            for row in rows:
                yield row
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    async def keys(self, *, prefix: str = "", after: K | None = None) -> AsyncIterator[K]:
        async for key, _ in self.items(prefix=prefix, after=after):
            yield key

    async def values(self, *, prefix: str = "", after: K | None = None) -> AsyncIterator[T]:
        async for _, value in self.items(prefix=prefix, after=after):
            yield value


class List(_View, Generic[T]):
    """Items by index. The length is a field of its own that is always known, so ``append`` waits for nothing."""

    declared = True

    def __len__(self) -> int:
        stored = self._attempt.state_of_entity().lookup(self._field.name)
        if isinstance(stored, _Unknown):
            raise UsageError(f"the length of {self._field.attribute} is not known yet")
        return 0 if stored is None else int(decode(_LENGTH, stored, self._field.attribute))

    def __bool__(self) -> bool:
        return len(self) > 0

    def _set_length(self, length: int) -> None:
        self._write(self._field.name, encode(_LENGTH, length, self._field.attribute))

    def _name(self, index: int) -> bytes:
        return self._field.name + f"/{index:0{_INDEX_DIGITS}d}".encode()

    def _index(self, index: int) -> int:
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"{self._field.attribute} has {length} items, none at {index}")
        return index % length

    def append(self, item: T) -> None:
        length = len(self)
        self._write(self._name(length), self._encode(item))
        self._set_length(length + 1)

    def extend(self, items: list[T]) -> None:
        for item in items:
            self.append(item)

    def __getitem__(self, index: int) -> Awaitable[T]:
        return self._get(self._index(index))

    async def _get(self, index: int) -> T:
        stored = await self._attempt.get(self._name(index))
        if stored is None:
            raise LookupError(f"{self._field.attribute} has no item at {index}, though its length says so")
        return self._decode(stored)  # type: ignore[no-any-return]

    def __setitem__(self, index: int, item: T) -> None:
        self._write(self._name(self._index(index)), self._encode(item))

    async def pop(self) -> T:
        """Removes the last item and gives it. Raises ``IndexError`` if there is none."""
        last = self._index(-1)
        item = await self._get(last)
        self._write(self._name(last), None)
        self._set_length(last)
        return item

    async def slice(self, start: int = 0, stop: int | None = None) -> list[T]:
        """Some items in order, as ``items[start:stop]`` of a list."""
        first, end, _ = slice(start, stop).indices(len(self))
        items: list[T] = []
        while first < end:
            after = self._name(first - 1) if first else self._field.name + b"/"
            rows = await self._attempt.scan(self._field.name + b"/", after, min(end - first, _PAGE))
            if not rows:
                break
            items += [self._decode(value) for _, value in rows]
            first += len(rows)
        return items

    async def __aiter__(self) -> AsyncIterator[T]:
        for start in range(0, len(self), _PAGE):
            for item in await self.slice(start, start + _PAGE):
                yield item

    def clear(self) -> None:
        """Removes all items: one write each."""
        for index in range(len(self)):
            self._write(self._name(index), None)
        self._set_length(0)


ITEM_VIEWS: dict[type, Any] = {Lazy: Lazy, Map: Map, List: List}
