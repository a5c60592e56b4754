"""``python -m millrace.check``: the check handlers, which ``millrace worker-check`` drives.

They are those of ``docs/internals/worker-protocol.md``, under "Check handlers".
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from . import Abort, CallError, Request, Response, Service, asgi, query, route, workflow

# How often something ran in this process: what a handler must not depend on, and some of these do.
_runs: dict[str, int] = {}


def _count(what: str) -> int:
    _runs[what] = _runs.get(what, 0) + 1
    return _runs[what]


class Check(Service, name="check", whole_up_to_bytes=4096):
    count: int = 0

    async def echo(self, value: Any) -> Any:
        return value

    async def add(self, number: int) -> int:
        self.count += number
        return self.count

    @query
    async def show(self) -> int:
        return self.count

    async def put(self, named: list[Any]) -> None:
        self.ctx.set(named[0], named[1])

    async def put_raw(self, name: str) -> None:
        self.ctx.set(name, b"\x00\xff")

    async def remove(self, name: str) -> None:
        self.ctx.delete(name)

    @query
    async def read(self, name: str) -> Any:
        value = await self.ctx.get(name)
        return value.hex() if isinstance(value, bytes) else value

    @query
    async def names(self, prefix: str, after: str | None, limit: int) -> list[str]:
        return await self.ctx.fields(prefix=prefix, after=after, limit=limit)

    async def write_then_read(self) -> list[Any]:
        self.ctx.set("count", 7)
        return [await self.ctx.get("count"), await self.ctx.fields(prefix="count")]

    @query
    async def query_that_writes(self) -> None:
        self.count = 1

    async def call(self, target: list[Any]) -> Any:
        self.count += 1
        return await self.ctx.call(*target)

    async def both(self, keys: list[str]) -> list[Any]:
        return await asyncio.gather(*[self.ctx.call("check", key, "add", 1) for key in keys])

    async def caught(self, target: list[Any]) -> Any:
        try:
            return await self.ctx.call(*target)
        except Abort as error:
            return {"code": "aborted", "message": error.message}
        except CallError as error:
            return {"code": error.code, "message": error.message}

    async def call_then_show(self, target: list[Any]) -> list[int]:
        before = self.count
        await self.ctx.call(*target)
        return [before, self.count]

    async def send(self, target: list[Any]) -> None:
        *target, delay_ms = target
        self.ctx.send_after(delay_ms / 1000, *target)

    async def send_id(self, target: list[Any]) -> str | None:
        return await self.ctx.send(*target)

    async def send_as(self, target: list[Any]) -> str | None:
        *target, id = target
        return await self.ctx.send_as(id, *target)

    async def signal(self, signal: list[Any]) -> None:
        self.ctx.signal(*signal)

    async def abort(self, error: list[Any]) -> None:
        raise Abort(*error)

    async def fail(self, message: str) -> None:
        raise RuntimeError(message)

    async def draws(self) -> list[Any]:
        return [self.ctx.now_ms(), self.ctx.random(), self.ctx.random(), self.ctx.uuid()]

    async def log(self, line: str) -> None:
        self.ctx.log(line)

    async def long(self, length: int) -> str:
        return "x" * length

    async def record(self, named: list[str]) -> Any:
        return await self.ctx.record(*named).get()

    async def object_get(self, place: list[str]) -> Any:
        stored = await self.ctx.object(*place).get()
        return stored and [stored.text(), stored.content_type, stored.size_bytes]

    async def object_head(self, place: list[str]) -> Any:
        info = await self.ctx.object(*place).head()
        return info and [info.etag, info.metadata]

    async def object_put(self, written: list[str]) -> str:
        bucket, key, body = written
        self.count += 1
        page = self.ctx.object(bucket, key)
        return (await page.put(body, content_type="text/html", if_none_match="*")).etag

    async def object_delete(self, place: list[str]) -> None:
        await self.ctx.object(*place).delete()

    async def objects(self, bucket: str) -> Any:
        page = await self.ctx.objects(bucket).list(prefix="a", limit=2)
        return [[found.key for found in page.objects], page.next]

    async def unsteady(self, target: list[Any]) -> Any:
        service, key, handler = target
        return await self.ctx.call(service, key, handler, _count("unsteady"))

    async def fickle(self, target: list[Any]) -> Any:
        if _count(f"fickle {self.key}") > 1:
            return None
        self.ctx.log("this comes once")
        service, key, handler = target
        return await self.ctx.call(service, key, handler, 1)

    @workflow
    async def flow_id(self) -> str | None:
        return self.ctx.id

    @workflow
    async def flow_step(self) -> Any:
        return await self.ctx.step("one", _step)

    @workflow
    async def flow_step_fails(self, message: str) -> Any:
        async def bad() -> None:
            raise RuntimeError(message)

        try:
            return await self.ctx.step("bad", bad)
        except CallError as error:
            return {"code": error.code, "message": error.message}

    @workflow
    async def flow_steps(self) -> list[Any]:
        first = await self.ctx.step("a", _letter, "a")
        second = await self.ctx.step("b", _letter, "b")
        return [first, second, await self.ctx.call("check", "ben", "add", 1)]

    @workflow
    async def flow_sleep(self, delay_ms: int) -> None:
        await self.ctx.sleep(delay_ms / 1000)

    @workflow
    async def flow_wait(self, signal: list[Any]) -> Any:
        name, timeout_ms = signal
        return await self.ctx.wait(name, timeout=None if timeout_ms is None else timeout_ms / 1000)

    @workflow
    async def flow_result(self, awaited: list[Any]) -> Any:
        id, timeout_ms = awaited
        return await self.ctx.result(id, timeout=None if timeout_ms is None else timeout_ms / 1000)

    @workflow
    async def flow_call(self, key: str) -> list[Any]:
        first = await self.ctx.call("check", key, "add", 1)
        return [first, await self.ctx.call("check", key, "add", 2)]

    @workflow
    async def flow_compensate(self, target: list[Any]) -> None:
        self.ctx.compensate(*target)

    @workflow
    async def flow_fetch(self, url: str) -> list[Any]:
        response = await self.ctx.fetch(url)
        return [response.status, response.text()]

    @route("GET /hello/:name")
    async def hello(self, request: Request) -> Any:
        name, asked = request.params["name"], request.query.get("q")
        return {"name": name, "query": asked, "header": request.header("x-check")}

    @route("POST /bytes")
    async def bytes_back(self, request: Request) -> Response:
        return Response(request.body, status=201, headers={"x-check": "yes"})

    @route("POST /json")
    async def json_back(self, request: Request) -> Any:
        return request.json()["value"]


async def _step() -> dict[str, Any]:
    return {"runs": _count("step")}


async def _letter(letter: str) -> str:
    return letter


app = asgi(Check)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m millrace.check", description=__doc__)
    parser.add_argument("--port", type=int, default=8081, help="0 for one that is free")
    options = parser.parse_args()
    try:
        import uvicorn
    except ImportError:
        print(
            "millrace.check: pip install uvicorn, or serve millrace.check:app with another ASGI server", file=sys.stderr
        )
        return 1
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
