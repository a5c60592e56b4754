"""A transaction across three services, each of which owns a list: all three append, or none does."""

import asyncio
from typing import Any

from millrace import Abort, List, Request, Service, asgi, query, route, transaction


class Numbers(Service):
    """A service that owns a list of numbers."""

    numbers: List[float]

    async def append(self, v: Any) -> list[float]:
        if type(v) not in (int, float):
            raise Abort("v must be a number")
        self.numbers.append(v)
        return await self.numbers.slice()

    @query
    async def items(self) -> list[float]:
        return await self.numbers.slice()


class Service1(Numbers, name="compose_service1"):
    pass


class Service2(Numbers, name="compose_service2"):
    @transaction(name="appendUpTo10")
    async def append_up_to_10(self, v: Any) -> list[float]:
        """Appends, and refuses what is above 10 only then: the refusal has to undo the append."""
        numbers = await self.append(v)
        if v > 10:
            raise Abort(f"service2 takes no more than 10, and {v} is more")
        return numbers


# Different keys, so that in general the three lists live on different shards.
FIRST, SECOND = Service1("service1"), Service2("service2")


class Compose(Numbers):
    @transaction(name="append")
    async def append_everywhere(self, v: Any) -> list[list[float]]:
        return list(await asyncio.gather(self.append(v), FIRST.append(v), SECOND.append(v)))

    @transaction(name="appendUserAbort")
    async def append_user_abort(self, v: Any) -> list[list[float]]:
        """The caller changes its mind after all three have appended."""
        lists = await self.append_everywhere(v)
        if v <= 10:
            raise Abort(f"v must be above 10, and {v} is not")
        return lists

    @transaction(name="appendCalleeThrows")
    async def append_callee_throws(self, v: Any) -> list[list[float]]:
        """A callee refuses; its Abort passes through here and ends the whole transaction."""
        return list(await asyncio.gather(self.append(v), FIRST.append(v), SECOND.append_up_to_10(v)))

    @query
    async def lists(self) -> list[list[float]]:
        return list(await asyncio.gather(self.numbers.slice(), FIRST.items(), SECOND.items()))

    @route("POST /append")
    async def post_append(self, request: Request) -> Any:
        return await FRONT_END.append_everywhere(request.json())

    @route("POST /append-user-abort")
    async def post_append_user_abort(self, request: Request) -> Any:
        return await FRONT_END.append_user_abort(request.json())

    @route("POST /append-callee-throws")
    async def post_append_callee_throws(self, request: Request) -> Any:
        return await FRONT_END.append_callee_throws(request.json())

    @route("GET /lists")
    async def get_lists(self, request: Request) -> Any:
        return await FRONT_END.lists()


FRONT_END = Compose("front-end")

services = [Compose, Service1, Service2]
app = asgi(*services)
