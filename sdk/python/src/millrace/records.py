"""Typed records, as handlers reach them: in the handler's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._protocol import payloads
from ._protocol.frames import Type
from ._types import dumps, loads
from ._worker.failures import value_of
from .errors import CallError

if TYPE_CHECKING:
    from ._worker.attempt import Attempt

Parameters = dict[str, Any]


async def _perform(attempt: Attempt, type: str, id: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """One operation; the answer has ``body``, ``matched`` and ``created``."""
    # A value may be null, which is not the same as absent.
    data = dumps({name: part for name, part in request.items() if part is not None or name == "value"})
    outcome = await attempt.perform(Type.RECORD, lambda number: payloads.operation(number, type.encode(), id, data))
    answer: dict[str, Any] = loads(value_of(outcome).data)
    return answer


class RecordRef:
    """One record. Values are JSON as the records' own HTTP API has it; so are paths."""

    def __init__(self, attempt: Attempt, type: str, id: bytes) -> None:
        self._attempt = attempt
        self._type = type
        self._id = id

    async def _do(self, op: str, **request: Any) -> dict[str, Any]:
        return await _perform(self._attempt, self._type, self._id, {"op": op, **request})

    async def get(self) -> Any:
        """The record; ``None`` if there is none."""
        try:
            return (await self._do("get")).get("body")
        except CallError as error:
            if error.code == "unknown-record":
                return None
            raise

    async def select(self, path: str, parameters: Parameters | None = None) -> list[Any]:
        """What a path matches."""
        answer = await self._do("select", path=path, parameters=parameters)
        return list(answer.get("body") or [])

    async def put(self, value: Any) -> bool:
        """Makes or replaces the record; says whether it is new."""
        return bool((await self._do("put", value=value)).get("created"))

    async def update(self, path: str, value: Any, parameters: Parameters | None = None) -> int:
        """Sets every place that the path matches; gives how many there were."""
        return await self.patch([{"op": "set", "path": path, "value": value}], parameters)

    async def patch(self, operations: Sequence[Parameters], parameters: Parameters | None = None) -> int:
        """All of these in order or, if one fails, none; gives how many places the paths matched."""
        answer = await self._do("patch", operations=list(operations), parameters=parameters)
        return int(answer.get("matched") or 0)

    async def delete(self) -> bool:
        """Deletes the record; says whether there was one."""
        return bool((await self._do("delete")).get("matched"))


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
        page: dict[str, Any] = (await _perform(self._attempt, self._type, b"", request))["body"]
        return page

    async def get_many(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Several records by id, each ``{"id", "etag", "record"}`` or ``{"id", "error"}``."""
        answer = await _perform(self._attempt, self._type, b"", {"op": "get_many", "ids": list(ids)})
        rows: list[dict[str, Any]] = answer["body"]["records"]
        return rows
