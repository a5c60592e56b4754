"""Moving money in two ways: one transaction, or a saga of two."""

import asyncio
from typing import Any

from millrace import Abort, Map, Request, Response, Service, asgi, field, query, route, transaction, workflow

from _input import body_of, text_of, whole_number


class Account(Service, name="transfer_account"):
    """Amounts are whole, in the smallest unit of the currency, so sums are exact."""

    money: int | None = field(default=None, name="balance")
    #: What a saga has changed and may have to undo, until the saga has ended.
    saga: Map[str, int]

    async def open(self, balance: Any) -> int:
        whole_number(balance, "balance", 0)
        if self.money is not None:
            raise Abort(f"account {self.key} is open already")
        self.money = balance
        return self.money

    async def deposit(self, amount: int) -> int:
        return self._change(whole_number(amount, "amount", 1))

    async def withdraw(self, amount: int) -> int:
        return self._change(-whole_number(amount, "amount", 1))

    @query
    async def balance(self) -> int | None:
        return self.money

    @transaction(name="depositFor")
    async def deposit_for(self, saga: str, amount: int) -> int:
        self.saga[saga] = whole_number(amount, "amount", 1)
        return self._change(amount)

    @transaction(name="withdrawFor")
    async def withdraw_for(self, saga: str, amount: int) -> int:
        self.saga[saga] = -whole_number(amount, "amount", 1)
        return self._change(-amount)

    async def undo(self, saga: str) -> None:
        """Undoes the change of a saga, if there was one. A deposit that is spent already leaves a debt."""
        amount = await self.saga.pop(saga)
        if amount is not None and self.money is not None:
            self.money -= amount

    async def settle(self, saga: str) -> None:
        """Forgets how to undo the change of a saga."""
        self.saga.delete(saga)

    def _change(self, amount: int) -> int:
        if self.money is None:
            raise Abort(f"there is no account {self.key}")
        if amount < 0 and self.money + amount < 0:
            raise Abort("insufficient funds", {"balance": self.money})
        self.money += amount
        return self.money


class Saga(Service, name="transfer_saga"):
    """Two transactions, one after the other, and what undoes them should the whole not come about.

    Between them the money is on neither account, and everybody can see that.
    """

    @workflow
    async def run(self, source: str, target: str, amount: int) -> dict[str, int]:
        assert self.ctx.id is not None
        saga = self.ctx.id
        # Registered before the call, because a workflow that is cancelled in the middle of a call does not
        # come to the line after it. So `undo` looks whether there is something to undo.
        self.ctx.compensate(Account(source).undo, saga)
        left = await Account(source).withdraw_for(saga, amount)
        # If this is refused, the workflow fails, and what was registered is called, the last one first.
        self.ctx.compensate(Account(target).undo, saga)
        received = await Account(target).deposit_for(saga, amount)
        self.ctx.send(Account(source).settle, saga)
        self.ctx.send(Account(target).settle, saga)
        return {"from": left, "to": received}


class Transfer(Service):
    @route("POST /open")
    async def open(self, request: Request) -> dict[str, Any]:
        body = body_of(request)
        id = text_of(body, "id")
        return {"id": id, "balance": await Account(id).open(body.get("balance"))}

    @route("GET /balance")
    async def balance(self, request: Request) -> Any:
        balance = await Account(request.query.get("id", "")).balance()
        return Response({"error": "there is no such account"}, status=404) if balance is None else balance

    @route("POST /transaction")
    async def transaction(self, request: Request) -> dict[str, int]:
        source, target, amount = parties(request)
        left, received = await asyncio.gather(Account(source).withdraw(amount), Account(target).deposit(amount))
        return {"from": left, "to": received}

    @route("POST /saga")
    async def saga(self, request: Request) -> Response:
        source, target, amount = parties(request)
        id = await self.ctx.send(Saga(source).run, source, target, amount)
        return Response(f'"{id}"', headers={"content-type": "application/json"})


def parties(request: Request) -> tuple[str, str, int]:
    body = body_of(request)
    source, target = text_of(body, "from", least=1), text_of(body, "to", least=1)
    amount = whole_number(body.get("amount"), "amount", 1)
    if source == target:
        raise Abort("from and to must be two accounts")
    return source, target, amount


services = [Transfer, Account, Saga]
app = asgi(*services)
