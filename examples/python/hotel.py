"""A room and a seat, or neither: one transaction over a hotel, a flight and the orders."""

import asyncio
from typing import Any, TypedDict

from millrace import Abort, Map, Request, Service, asgi, field, query, route

from _input import body_of, text_of, whole_number

NAME_CHARACTERS = 64
# So that an audit stays below the 10,000 calls that one transaction may make, 1,024 of them at once.
IDS = 1000


class State(TypedDict):
    capacity: int
    left: int


class Order(TypedDict):
    user: str
    hotel: str
    at: int


class Stock(Service):
    """What a hotel and a flight have in common: so many places, of which some are left."""

    capacity: int | None = None
    left: int = 0

    async def add(self, capacity: Any) -> None:
        whole_number(capacity, "capacity", 0)
        if self.capacity is not None:
            raise Abort(f"{self._kind()} {self.key} exists already")
        self.capacity = self.left = capacity

    async def take(self) -> str | None:
        """Takes one place, or says why there is none to take."""
        if self.capacity is None:
            return f"there is no {self._kind()} {self.key}"
        if self.left == 0:
            return f"{self._kind()} {self.key} is full"
        self.left -= 1
        return None

    @query
    async def state(self) -> State:
        return {"capacity": self.capacity or 0, "left": self.left}

    def _kind(self) -> str:
        return type(self).__name__.lower()


class Hotel(Stock):
    @route("POST /add_hotel")
    async def add_hotel(self, request: Request) -> dict[str, Any]:
        return await add(request, Hotel)

    @route("POST /add_flight")
    async def add_flight(self, request: Request) -> dict[str, Any]:
        return await add(request, Flight)

    @route("POST /reserve")
    async def reserve(self, request: Request) -> list[Any]:
        body = body_of(request)
        user, flight, hotel = [name_of(body, name) for name in ("user", "flight", "hotel")]
        try:
            await Orders(flight).place(user, hotel)
        except Abort as refusal:
            # Everything that `place` did is undone, and this answer is all that is left of it.
            return [False, refusal.message]
        return [True, f"{user} has a room in {hotel} and a seat on {flight}"]

    @route("GET /audit")
    async def audit(self, request: Request) -> dict[str, Any]:
        hotels, flights = await stocks(Hotel), await stocks(Flight)
        orders = sum(await asyncio.gather(*[Orders(id).count() for id in flights]))
        return {
            "hotels": {id: state["left"] for id, state in hotels.items()},
            "flights": {id: state["left"] for id, state in flights.items()},
            "orders": orders,
            # Rooms and seats taken for which there is no order (or the reverse): what a reservation that
            # began and did not end would leave. All of this is read from one state, so it is 0.
            "locks": abs(taken(hotels) - orders) + abs(taken(flights) - orders),
        }


class Flight(Stock, name="hotel_flight"):
    pass


class Orders(Service, name="hotel_order"):
    """The orders of one flight: an entity for each, so that orders of different flights do not wait."""

    placed: int = field(default=0, name="count")
    order: Map[str, Order]

    async def place(self, user: str, hotel: str) -> None:
        """A room, a seat and the order for them, or an Abort and none of them."""
        no_room, no_seat = await asyncio.gather(Hotel(hotel).take(), Flight(self.key).take())
        # One of the two may have been taken; raising gives it back.
        problem = no_room or no_seat
        if problem is not None:
            raise Abort(problem)
        self.order[f"{self.placed:09d}"] = {"user": user, "hotel": hotel, "at": self.ctx.now_ms()}
        self.placed += 1

    @query
    async def count(self) -> int:
        return self.placed

    @query
    async def orders(self, after: str | None = None, limit: int = 100) -> list[Any]:
        return await self.ctx.entries(prefix="order/", after=after, limit=limit)


class Registry(Service, name="hotel_registry"):
    """Which hotels and flights there are, for the audit. Written when one is added, never by a reservation."""

    count: int = 0
    id: Map[str, bool]

    async def add(self, id: str) -> None:
        if self.count == IDS:
            raise Abort(f"this example keeps at most {IDS} hotels and as many flights")
        self.id[id] = True
        self.count += 1

    @query
    async def ids(self) -> list[str]:
        return [id async for id in self.id.keys()]


async def add(request: Request, kind: type[Stock]) -> dict[str, Any]:
    body = body_of(request)
    id, capacity = name_of(body, "id"), body.get("capacity")
    await asyncio.gather(kind(id).add(capacity), Registry(kind.service_name()).add(id))
    return {"id": id, "capacity": capacity}


async def stocks(kind: type[Stock]) -> dict[str, State]:
    ids = await Registry(kind.service_name()).ids()
    return dict(zip(ids, await asyncio.gather(*[kind(id).state() for id in ids]), strict=True))


def taken(stocks: dict[str, State]) -> int:
    return sum(state["capacity"] - state["left"] for state in stocks.values())


def name_of(body: dict[str, Any], name: str) -> str:
    return text_of(body, name, NAME_CHARACTERS, 1)


services = [Hotel, Flight, Orders, Registry]
app = asgi(*services)
