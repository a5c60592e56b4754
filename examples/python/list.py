"""A list an entity, an item a field: an append writes one item, however long the list is."""

from typing import Any

from millrace import Abort, List, Service, asgi, query

# What one transaction may write, so that lists can be joined whole.
LIST_ITEMS = 9000


class Lists(Service, name="list"):
    stored: List[Any]

    async def append(self, item: Any) -> int:
        """Appends an item; answers the new size."""
        return self._extend([item])

    @query
    async def index(self, index: Any) -> Any:
        """The item at an index from 0."""
        if type(index) is not int or not 0 <= index < len(self.stored):
            raise Abort(f"there is no item {index}")
        return await self.stored[index]

    async def pop(self) -> Any:
        """Removes the last item and answers it."""
        if not self.stored:
            raise Abort("the list is empty")
        return await self.stored.pop()

    async def concat(self, other: str) -> int:
        """Appends all items of another list, which stays as it is; answers the new size."""
        return self._extend(await Lists(other).items())

    @query
    async def items(self) -> list[Any]:
        return await self.stored.slice()

    def _extend(self, items: list[Any]) -> int:
        if len(self.stored) + len(items) > LIST_ITEMS:
            raise Abort(f"a list holds at most {LIST_ITEMS} items")
        self.stored.extend(items)
        return len(self.stored)


services = [Lists]
app = asgi(*services)
