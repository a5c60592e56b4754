"""One transaction over two services at once: both count, or neither does."""

import asyncio

from millrace import Request, Service, asgi, query, route

from _input import body_of, text_of


class Counter(Service):
    """A service that counts its calls. Both backends are one."""

    counted: int = 0

    async def req(self) -> int:
        self.counted += 1
        return self.counted - 1

    @query
    async def count(self) -> int:
        return self.counted


class Backend1(Counter, name="tree_backend1"):
    pass


class Backend2(Counter, name="tree_backend2"):
    pass


class Tree(Service):
    @route("POST /req")
    async def request(self, request: Request) -> list[int]:
        key = text_of(body_of(request), "key")
        # Another key is, in general, another shard, on another core or node.
        return list(await asyncio.gather(Backend1(key).req(), Backend2(f"{key}/2").req()))

    @route("GET /counters")
    async def counters(self, request: Request) -> list[int]:
        # Only queries: both are read from one consistent state, so they never differ.
        key = request.query.get("key", "")
        return list(await asyncio.gather(Backend1(key).count(), Backend2(f"{key}/2").count()))


services = [Tree, Backend1, Backend2]
app = asgi(*services)
