"""A service that says which version of it answers: that of the environment."""

from __future__ import annotations

import os

from millrace import Service, asgi, query, workflow

VERSION = os.environ.get("TEST_VERSION", "")


class Order(Service):
    @query
    async def version(self) -> str:
        return VERSION

    @workflow
    async def fulfil(self) -> list[str]:
        before = await self.ctx.step("before", lambda: VERSION)
        await self.ctx.wait("paid")
        return [before, await self.ctx.step("after", lambda: VERSION)]


app = asgi(Order)
