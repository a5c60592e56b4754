"""The services that tests of objects run against a server."""

from __future__ import annotations

from typing import Any

from millrace import Abort, CallError, Service, asgi, query, workflow


class Page(Service):
    count: int = 0

    async def save(self, key: str, text: str, fail: bool = False) -> list[str]:
        self.count += 1
        page = self.ctx.object("photos", key)
        written = await page.put(text, content_type="text/plain", metadata={"Color": "red"})
        if fail:
            raise Abort("no")
        own = await page.get()
        assert own is not None
        return [written.etag, own.text()]

    async def move(self, old: str, new: str, to: str) -> None:
        self.count -= 1
        await Page(to).counts()
        found = await self.ctx.object("photos", old).get()
        await self.ctx.object("photos", old).delete()
        if found is None:
            raise Abort("there is no object")
        await self.ctx.object("photos", new).put(found.content, content_type=found.content_type)

    async def counts(self) -> None:
        self.count += 1

    @query
    async def saved(self) -> int:
        return self.count

    @query
    async def read(self, place: list[str]) -> Any:
        found = await self.ctx.object(*place).get()
        return found and [found.text(), found.content_type, found.metadata]

    @query
    async def size(self, key: str) -> int | None:
        info = await self.ctx.object("photos", key).head()
        return None if info is None else info.size_bytes

    @query
    async def keys(self, prefix: str = "", limit: int = 1000, after: str = "", delimiter: str = "") -> Any:
        page = await self.ctx.objects("photos").list(prefix=prefix, limit=limit, after=after, delimiter=delimiter)
        return [[found.key for found in page.objects], page.prefixes, page.next]

    async def remove(self, key: str) -> None:
        await self.ctx.object("photos", key).delete()

    async def reason(self, bucket: str) -> Any:
        try:
            await self.ctx.object(bucket, "k").put("x")
        except CallError as error:
            return [error.code, (error.detail or {}).get("code")]
        return None

    async def once(self, key: str) -> None:
        self.count += 1
        await self.ctx.object("photos", key).put("x", if_none_match="*")

    async def put_any(self, body: Any) -> None:
        await self.ctx.object("photos", "any").put(body)

    async def typed(self, content_type: str) -> None:
        await self.ctx.object("photos", "typed").put("x", content_type=content_type)

    @query
    async def writes_in_a_query(self) -> None:
        await self.ctx.object("photos", "in-a-query").put("x")

    @workflow
    async def copies(self, old: str, new: str) -> list[Any]:
        source = self.ctx.object("photos", old)
        first = await source.get()
        assert first is not None
        await source.put("changed")
        await self.ctx.wait("go")
        await self.ctx.object("photos", new).put(first.content)
        return [first.text(), await self.ctx.object("photos", "none").get() is None]


app = asgi(Page)
