"""Services for the tests of streams: they read what they were not given, compute for long, and count their runs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import millrace
from millrace import Abort, Lazy, Map, Service, query, workflow


def ran(name: str) -> None:
    """Notes a run of a handler outside, where an attempt that is void leaves its trace too."""
    with open(Path(os.environ["MILLRACE_TEST_RUNS"]), "a", encoding="utf-8") as runs:
        runs.write(f"{name}\n")


def hold_up(seconds: float) -> None:
    if os.path.exists(os.environ["MILLRACE_TEST_RUNS"] + ".blocks"):
        time.sleep(seconds)


class Account(Service):
    balance: int = 0
    notes: Map[str, str]
    text: Lazy[str]

    async def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    async def transfer(self, to: str, amount: int) -> int:
        ran("transfer")
        if self.balance < amount:
            raise Abort("insufficient funds")
        self.balance -= amount
        await Account(to).deposit(amount)
        return self.balance

    @query
    async def show(self) -> int:
        return self.balance

    @query
    async def long(self, length: int) -> str:
        return "x" * length

    # Their results are on their way together, in many parts.
    async def longs(self, keys: list[str], length: int) -> list[int]:
        ran("longs")
        return [len(text) for text in await asyncio.gather(*[Account(key).long(length) for key in keys])]

    async def write(self, count: int) -> None:
        for number in range(count):
            self.notes.set(f"n{number:03}", "x" * 10_000)
        self.text.set("y" * 400_000)

    async def read(self) -> list[int]:
        ran("read")
        text = await self.text
        one = await self.notes.get("n001")
        rows = await self.notes.page(limit=1_000)
        return [len(text), len(one or ""), len(rows)]

    async def slow(self, seconds: float, then: int) -> int:
        ran("slow")
        self.balance += then
        await asyncio.sleep(seconds)
        return self.balance

    async def blocks(self, after: float, seconds: float) -> None:
        """Holds the event loop up, where nothing can be sent from."""
        ran("blocks")
        await asyncio.sleep(after)
        hold_up(seconds)


class Flow(Service):
    @workflow
    async def pay(self, key: str) -> int:
        await Account(key).deposit(1)
        return await Account(key).deposit(2)


#: Nothing is kept between two requests, so where each turn is a request, each runs the handler again.
app = millrace.asgi(Account, Flow, kept_attempts=0)
requests = millrace.asgi(Account, Flow, kept_attempts=0, stream=False)
