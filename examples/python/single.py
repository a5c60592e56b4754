"""One entity a key, one transaction a request: the yardstick for chain and tree."""

from millrace import Request, Service, asgi, query, route

from _input import body_of, text_of


class Single(Service):
    counted: int = 0

    async def req(self) -> int:
        """Counts this call, and answers how many there were before it."""
        before = self.counted
        self.counted += 1
        return before

    @query
    async def count(self) -> int:
        return self.counted

    @route("POST /req")
    async def request(self, request: Request) -> int:
        return await Single(text_of(body_of(request), "key")).req()


services = [Single]
app = asgi(*services)
