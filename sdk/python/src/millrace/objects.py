"""Objects of buckets, as handlers reach them: in the handler's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ._protocol import payloads
from ._protocol.frames import ProtocolError, Type
from ._protocol.payloads import Cursor
from ._types import dumps, loads
from ._worker.failures import value_of

if TYPE_CHECKING:
    from ._worker.attempt import Attempt


@dataclass(frozen=True)
class ObjectInfo:
    """What an object is, without its content."""

    size_bytes: int
    etag: str
    modified_ms: int
    content_type: str
    metadata: dict[str, str]
    version: str | None


@dataclass(frozen=True)
class StoredObject(ObjectInfo):
    """An object with its content."""

    content: bytes

    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return loads(self.content)


@dataclass(frozen=True)
class ObjectWritten:
    """What a write has made. ``version`` is there in buckets that keep versions."""

    etag: str
    version: str | None


@dataclass(frozen=True)
class ListedObject:
    """One object of a list."""

    key: str
    size_bytes: int
    etag: str
    modified_ms: int


@dataclass(frozen=True)
class ObjectPage:
    """A page of a list. Give ``next`` as ``after`` for the page behind it; ``None`` if this is the last."""

    objects: list[ListedObject]
    prefixes: list[str]
    next: str | None


def _stored(value: payloads.Value) -> tuple[dict[str, Any], bytes] | None:
    if value.kind == payloads.JSON:
        return None
    cursor = Cursor(value.data)
    described = loads(cursor.bytes())
    return _known(described, ObjectInfo), value.data[cursor.offset :]


def _known(described: dict[str, Any], of: type[Any]) -> dict[str, Any]:
    """The members that this SDK knows: a newer server may say more."""
    try:
        return {name: described[name] for name in [field.name for field in fields(of)]}
    except (KeyError, TypeError):
        raise ProtocolError("the server describes an object in another way") from None


class ObjectRef:
    """One object of a bucket, whether or not there is one of that key."""

    def __init__(self, attempt: Attempt, bucket: str, key: str) -> None:
        self._attempt = attempt
        self._bucket = bucket
        self._key = key

    async def _do(self, op: str, body: bytes = b"", **given: Any) -> payloads.Value:
        return await _perform(self._attempt, self._bucket, self._key, op, body, given)

    async def get(self) -> StoredObject | None:
        """The object with its content, of at most 4 MiB; ``None`` if there is none."""
        found = _stored(await self._do("get"))
        return None if found is None else StoredObject(**found[0], content=found[1])

    async def head(self) -> ObjectInfo | None:
        """What the object is; ``None`` if there is none."""
        found = _stored(await self._do("head"))
        return None if found is None else ObjectInfo(**found[0])

    async def put(
        self,
        body: str | bytes | bytearray | memoryview,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> ObjectWritten:
        """Makes or replaces the object, of at most 1 MiB. ``if_none_match="*"`` makes it only if there is none."""
        if not isinstance(body, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"a body is a str or bytes, not {type(body).__name__}")
        content = body.encode() if isinstance(body, str) else bytes(body)
        given = {
            "content_type": content_type,
            "metadata": None if metadata is None else dict(metadata),
            "if_match": if_match,
            "if_none_match": if_none_match,
        }
        written = loads((await self._do("put", content, **given)).data)
        return ObjectWritten(**_known(written, ObjectWritten))

    async def delete(self, *, if_match: str | None = None) -> None:
        """Deletes the object; in a bucket that keeps versions, marks it as gone."""
        await self._do("delete", if_match=if_match)


class ObjectsRef:
    """The objects of a bucket."""

    def __init__(self, attempt: Attempt, bucket: str) -> None:
        self._attempt = attempt
        self._bucket = bucket

    async def list(
        self,
        *,
        prefix: str | None = None,
        delimiter: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> ObjectPage:
        """A page of the bucket's objects in the order of their keys, at most 1,000."""
        given = {"prefix": prefix, "delimiter": delimiter, "after": after, "limit": limit}
        page = loads((await _perform(self._attempt, self._bucket, "", "list", b"", given)).data)
        objects = [ListedObject(**_known(item, ListedObject)) for item in page["objects"]]
        return ObjectPage(objects, page["prefixes"], page["next"])


async def _perform(
    attempt: Attempt, bucket: str, key: str, op: str, body: bytes, given: dict[str, Any]
) -> payloads.Value:
    request = dumps({"op": op, **{name: value for name, value in given.items() if value is not None}})
    parts = (bucket.encode(), key.encode(), request, body)
    return value_of(await attempt.perform(Type.OBJECT, lambda number: payloads.operation(number, *parts)))


def check_names(*names: str) -> None:
    """A bucket and a key are texts."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a bucket and a key are of type str, not {type(name).__name__}")
