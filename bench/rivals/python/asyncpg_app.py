"""The counter and the hotel on FastAPI with asyncpg: hand-written SERIALIZABLE transactions, and a table of idempotency keys.

A request with a key finds its reply in the table, or puts it there in the transaction that it makes. PGHOST is the folder of
PostgreSQL's socket.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from fastapi import FastAPI, Request

POOL = max(1, 16 // int(os.environ["PROCESSES"]))
ATTEMPTS = 1000
ADD = """INSERT INTO counters VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET count = counters.count + excluded.count RETURNING count"""
AUDIT = """SELECT coalesce((SELECT json_object_agg(id, rooms_left) FROM hotels), '{}') AS hotels,
    coalesce((SELECT json_object_agg(id, seats_left) FROM flights), '{}') AS flights,
    (SELECT count(*)::integer FROM orders) AS orders"""

pool: asyncpg.Pool


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    global pool
    pool = await asyncpg.create_pool(
        user="hotel",
        database="postgres",
        host=os.environ["PGHOST"],
        min_size=POOL,
        max_size=POOL,
        server_settings={"default_transaction_isolation": "serializable"},
    )
    yield
    await pool.close()


app = FastAPI(lifespan=lifespan, openapi_url=None)


async def once(key: str | None, transaction: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
    """Runs a transaction, again where PostgreSQL asks for it; the reply is kept under the key."""
    for attempt in range(ATTEMPTS):
        try:
            async with pool.acquire() as connection, connection.transaction():
                if key is None:
                    return await transaction(connection)
                known = await connection.fetchval("SELECT reply FROM replies WHERE key = $1", key)
                if known is not None:
                    return json.loads(known)
                reply = await transaction(connection)
                await connection.execute("INSERT INTO replies VALUES ($1, $2)", key, json.dumps(reply))
                return reply
        except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError):
            if attempt > 0:
                await asyncio.sleep(random.random() * min(attempt, 10) / 1000)
    raise RuntimeError("too many conflicts")


@app.get("/healthz")
async def healthz() -> str:
    return "ok"


@app.post("/call/counter/{key}/add")
async def add(key: str, request: Request) -> int:
    amount = await request.json()
    return await once(request.headers.get("idempotency-key"), lambda connection: connection.fetchval(ADD, key, amount))


@app.post("/hotel/add_hotel")
async def add_hotel(request: Request) -> None:
    body = await request.json()
    await once(None, lambda c: c.execute("INSERT INTO hotels VALUES ($1, $2)", body["id"], body["capacity"]))


@app.post("/hotel/add_flight")
async def add_flight(request: Request) -> None:
    body = await request.json()
    await once(None, lambda c: c.execute("INSERT INTO flights VALUES ($1, $2)", body["id"], body["capacity"]))


@app.post("/hotel/reserve")
async def reserve(request: Request) -> list[Any]:
    body = await request.json()
    user, flight, hotel = body["user"], body["flight"], body["hotel"]

    async def transaction(connection: asyncpg.Connection) -> list[Any]:
        room = "UPDATE hotels SET rooms_left = rooms_left - 1 WHERE id = $1 AND rooms_left > 0"
        if await connection.execute(room, hotel) == "UPDATE 0":
            return [False, f"no room left in hotel {hotel}"]
        seat = "UPDATE flights SET seats_left = seats_left - 1 WHERE id = $1 AND seats_left > 0"
        if await connection.execute(seat, flight) == "UPDATE 0":
            await connection.execute("UPDATE hotels SET rooms_left = rooms_left + 1 WHERE id = $1", hotel)
            return [False, f"no seat left on flight {flight}"]
        order = 'INSERT INTO orders ("user", hotel, flight) VALUES ($1, $2, $3)'
        await connection.execute(order, user, hotel, flight)
        return [True, "reserved"]

    return await once(request.headers.get("idempotency-key"), transaction)


@app.get("/hotel/audit")
async def audit() -> dict[str, Any]:
    row = await pool.fetchrow(AUDIT)
    return {"hotels": json.loads(row["hotels"]), "flights": json.loads(row["flights"]), "orders": row["orders"], "locks": 0}
