"""Typed records, as handlers reach them: in the handler's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._protocol import payloads
from ._protocol.frames import Type
from ._protocol.payloads import Failure
from ._types import dumps, loads
from ._worker.failures import exception_of

if TYPE_CHECKING:
    from ._worker.attempt import Attempt

Parameters = dict[str, Any]


async def _perform(attempt: Attempt, type: str, id: bytes, request: dict[str, Any]) -> Any:
    # A value may be null, which is not the same as absent.
    data = dumps({name: part for name, part in request.items() if part is not None or name == "value"})
    outcome = await attempt.perform(Type.RECORD, lambda number: payloads.operation(number, type.encode(), id, data))
    if isinstance(outcome, Failure):
        raise exception_of(outcome)
    return loads(outcome.data)


class RecordRef:
    """One record. Values are JSON as the records' own HTTP API has it; so are paths."""

    def __init__(self, attempt: Attempt, type: str, id: bytes) -> None:
        self._attempt = attempt
        self._type = type
        self._id = id

    async def _do(self, op: str, **request: Any) -> Any:
        return await _perform(self._attempt, self._type, self._id, {"op": op, **request})

    async def get(self) -> Any:
        """The record; ``None`` if there is none."""
        return await self._do("get")

    async def select(self, path: str, parameters: Parameters | None = None) -> list[Any]:
        """What a path matches."""
        found: list[Any] = await self._do("select", path=path, parameters=parameters)
        return found

    async def put(self, value: Any) -> bool:
        """Makes or replaces the record; says whether it is new."""
        return bool(await self._do("put", value=value))

    async def update(self, path: str, value: Any, parameters: Parameters | None = None) -> int:
        """Sets every place that the path matches; gives how many there were."""
        return int(await self._do("update", path=path, value=value, parameters=parameters))

    async def patch(self, operations: Sequence[Parameters], parameters: Parameters | None = None) -> int:
        """All of these in order or, if one fails, none; gives how many places the paths matched."""
        return int(await self._do("patch", operations=list(operations), parameters=parameters))

    async def delete(self) -> bool:
        """Deletes the record; says whether there was one."""
        return bool(await self._do("delete"))


class RecordsRef:
    """The records of a type, read from all shards."""

    def __init__(self, attempt: Attempt, type: str) -> None:
        self._attempt = attempt
        self._type = type

    async def find(
        self,
        *,
        where: str | None = None,
        parameters: Parameters | None = None,
        order: str | None = None,
        prefix: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """A page ``{"records": […], "cursor": …}`` of those that a predicate holds for."""
        request = {
            "op": "find",
            "where": where,
            "parameters": parameters,
            "order": order,
            "prefix": prefix,
            "cursor": cursor,
            "limit": limit,
        }
        page: dict[str, Any] = await _perform(self._attempt, self._type, b"", request)
        return page

    async def get_many(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Several records by id, each ``{"id", "etag", "record"}`` or ``{"id", "error"}``."""
        rows: list[dict[str, Any]] = await _perform(
            self._attempt, self._type, b"", {"op": "get_many", "ids": list(ids)}
        )
        return rows
