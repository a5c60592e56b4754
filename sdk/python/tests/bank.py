"""The services that tests run against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

from millrace import Abort, Map, Request, Retry, Service, WaitTimeout, asgi, query, route, schedule, workflow


class Account(Service):
    balance: int = 0
    seen: Map[str, int]

    async def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    async def transfer(self, to: str, amount: int) -> None:
        if self.balance < amount:
            raise Abort("insufficient funds", {"balance": self.balance})
        self.balance -= amount
        await Account(to).deposit(amount)

    @schedule("0 * * * *", key="saver", input={"amount": 1})
    async def save(self, amount: int) -> None:
        self.balance += amount

    async def remember(self, name: str, count: int) -> list[str]:
        for index in range(count):
            self.seen[f"{name}{index:05d}"] = index
        return [key for key, _ in await self.seen.page(limit=2)]

    @query
    async def show(self) -> int:
        return self.balance

    def plain(self, amount: int) -> int:
        self.balance += amount
        return self.ctx.result(Account(self.key + "-twin").deposit(amount))

    async def calls_itself(self, amount: int) -> int:
        self.balance += 1
        await Account(self.key).deposit(amount)
        self.balance += 1
        return self.balance

    async def broken(self) -> None:
        raise ValueError("no such luck")

    @route("GET /both/:a/:b")
    async def both(self, request: Request) -> list[int]:
        keys = request.params["a"], request.params["b"]
        return list(await asyncio.gather(*[Account(key).show() for key in keys]))


class Trip(Service):
    @workflow
    async def book(self, guest: str) -> str:
        self.ctx.compensate(Account(guest).deposit, 80)
        token = await self.ctx.step("token", make_token, guest)
        await self.ctx.sleep(0.01)
        await Account(guest).transfer("inn", 80)
        answer = await self.ctx.wait("confirmed", timeout=20)
        return f"{token} {answer}"

    @workflow
    async def patient(self, days: float) -> str:
        try:
            await self.ctx.wait("confirmed", timeout=days * 24 * 3600)
        except WaitTimeout:
            return "nobody confirmed"
        return "confirmed"

    @workflow
    async def stubborn(self, what: str) -> None:
        if what == "step":
            await self.ctx.step("breaks", divide, 1, 0, retry=Retry(attempts=2, first_ms=5))
        elif what == "call":
            await self.ctx.call_with(Retry(attempts=3, first_ms=5), Account("ann").broken)
        await Account("ann").broken()

    @workflow
    async def looks_out(self, url: str) -> str:
        return (await self.ctx.fetch(url)).text()


class Pair(Service):
    @workflow
    async def open(self, guests: list[str]) -> list[Any]:
        for guest in guests:
            self.ctx.send_as(f"{self.ctx.id}-{guest}", Pair(guest).give, 5)
        outputs = [await self.ctx.result(f"{self.ctx.id}-{guest}") for guest in guests]
        try:
            await self.ctx.result("nobody-starts-it", timeout=0.01)
        except TimeoutError:
            outputs.append("in vain")
        return outputs

    @workflow
    async def give(self, amount: int) -> int:
        if amount > 100:
            raise Abort("too much")
        return await Account(self.key).deposit(amount)


def make_token(guest: str) -> str:
    return f"token of {guest}"


def divide(amount: int, by: int) -> int:
    return amount // by


services = [Account, Trip, Pair]
app = asgi(*services)
