"""The counter and the hotel on Restate with its Python SDK: virtual objects, and a reservation that undoes what it did if a later
part fails, because Restate has no transaction over several objects. ADMIN_PORT is the server's admin API, which the audit reads."""

import json
import os
import urllib.request
from datetime import timedelta
from typing import Any

import restate
from restate import Context, ObjectContext, Service, TerminalError, VirtualObject

# By default Restate keeps the journal of a finished invocation for a day. Nobody reads it here, and no other side keeps one.
KEPT = {"journal_retention": timedelta(0)}

counter = VirtualObject("counter", **KEPT)
rooms = VirtualObject("rooms", **KEPT)
seats = VirtualObject("seats", **KEPT)
orders = VirtualObject("orders", **KEPT)
hotel = Service("hotel", **KEPT)


@counter.handler("add")
async def count(ctx: ObjectContext, amount: int) -> int:
    sum = (await ctx.get("count") or 0) + amount
    ctx.set("count", sum)
    return sum


async def fill(ctx: ObjectContext, capacity: int) -> None:
    ctx.set("left", capacity)


async def take(ctx: ObjectContext) -> bool:
    left = await ctx.get("left") or 0
    if left <= 0:
        return False
    ctx.set("left", left - 1)
    return True


async def give_back(ctx: ObjectContext) -> None:
    ctx.set("left", (await ctx.get("left") or 0) + 1)


def stock(object: VirtualObject) -> tuple[Any, Any, Any]:
    """The handlers of hotels, and of flights."""

    @object.handler("add")
    async def add(ctx: ObjectContext, capacity: int) -> None:
        await fill(ctx, capacity)

    @object.handler("take")
    async def take_one(ctx: ObjectContext) -> bool:
        return await take(ctx)

    @object.handler("giveBack")
    async def give_one_back(ctx: ObjectContext) -> None:
        await give_back(ctx)

    return add, take_one, give_one_back


add_room, take_room, give_room_back = stock(rooms)
add_seat, take_seat, give_seat_back = stock(seats)


@orders.handler("place")
async def place(ctx: ObjectContext, order: dict[str, str]) -> None:
    ctx.set(order["id"], {"flight": order["flight"], "hotel": order["hotel"]})


@hotel.handler("add_hotel")
async def add_hotel(ctx: Context, addition: dict[str, Any]) -> None:
    await ctx.object_call(add_room, addition["id"], addition["capacity"])


@hotel.handler("add_flight")
async def add_flight(ctx: Context, addition: dict[str, Any]) -> None:
    await ctx.object_call(add_seat, addition["id"], addition["capacity"])


@hotel.handler("reserve")
async def reserve(ctx: Context, wanted: dict[str, str]) -> list[Any]:
    undo: list[tuple[Any, str]] = []
    try:
        if not await ctx.object_call(take_room, wanted["hotel"], None):
            return [False, f"no room left in hotel {wanted['hotel']}"]
        undo.append((give_room_back, wanted["hotel"]))
        if not await ctx.object_call(take_seat, wanted["flight"], None):
            for step, key in reversed(undo):
                await ctx.object_call(step, key, None)
            return [False, f"no seat left on flight {wanted['flight']}"]
        undo.append((give_seat_back, wanted["flight"]))
        order = {"id": str(ctx.uuid()), "flight": wanted["flight"], "hotel": wanted["hotel"]}
        await ctx.object_call(place, wanted["user"], order)
        return [True, "reserved"]
    except TerminalError:
        for step, key in reversed(undo):
            await ctx.object_call(step, key, None)
        raise


def query(text: str) -> list[dict[str, Any]]:
    """Asks the server's introspection, the way to look over all keys of an object."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{os.environ['ADMIN_PORT']}/query",
        json.dumps({"query": text}).encode(),
        {"content-type": "application/json", "accept": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        rows: list[dict[str, Any]] = json.load(response)["rows"]
        return rows


def left(name: str) -> dict[str, int]:
    rows = query(f"SELECT service_key AS id, value_utf8 AS value FROM state WHERE service_name = '{name}' AND key = 'left'")
    return {row["id"]: json.loads(row["value"]) for row in rows}


def number(text: str) -> int:
    return int(query(text)[0]["count"])


@hotel.handler("audit")
async def audit(ctx: Context) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        return {
            "hotels": left("rooms"),
            "flights": left("seats"),
            "orders": number("SELECT count(*) AS count FROM state WHERE service_name = 'orders'"),
            "locks": number("SELECT count(*) AS count FROM sys_keyed_service_status"),
        }

    return await ctx.run_typed("audit", look)


app = restate.app([counter, rooms, seats, orders, hotel])
