"""A transaction through three services: the route calls caller1, which calls caller2, which calls backend."""

from millrace import Request, Service, asgi, route

from _input import body_of, text_of


class Backend(Service, name="chain_backend"):
    count: int = 0

    async def req(self) -> int:
        """Counts this call, and answers how many there were before it."""
        self.count += 1
        return self.count - 1


class Caller2(Service, name="chain_caller2"):
    async def req(self, spread: bool) -> list[int]:
        return [await Backend(f"{self.key}/backend" if spread else self.key).req()]


class Caller1(Service, name="chain_caller1"):
    async def req(self, spread: bool) -> list[list[int]]:
        # A shard is chosen by the key alone: with its own key, the next entity lives on the same shard.
        return [await Caller2(f"{self.key}/caller2" if spread else self.key).req(spread)]


class Chain(Service):
    @route("POST /req")
    async def request(self, request: Request) -> list[list[int]]:
        body = body_of(request)
        return await Caller1(text_of(body, "key")).req(bool(body.get("spread")))


services = [Chain, Caller1, Caller2, Backend]
app = asgi(*services)
