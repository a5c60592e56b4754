"""The counter and the hotel on DBOS: a durable workflow whose one step is a SERIALIZABLE transaction, behind FastAPI.

The idempotency key is the workflow's id. PGHOST is the folder of PostgreSQL's socket.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dbos import DBOS, AsyncSQLAlchemyDatasource, DBOSConfig, SetWorkflowID
from fastapi import FastAPI, Request
from sqlalchemy import text

HOST = os.environ["PGHOST"]
POOL = max(1, 16 // int(os.environ["PROCESSES"]))

config: DBOSConfig = {
    "name": "rival",
    "system_database_url": f"postgresql://hotel@/dbos?host={HOST}",
    "sys_db_pool_size": max(2, POOL),
    "log_level": "ERROR",
    "application_version": "1",
    "executor_id": str(os.getpid()),
}
DBOS(config=config)
store: AsyncSQLAlchemyDatasource
SERIALIZABLE = {"isolation_level": "SERIALIZABLE"}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    global store
    url = f"postgresql+psycopg://hotel@/postgres?host={HOST}"
    store = await AsyncSQLAlchemyDatasource.create(url, engine_kwargs={"pool_size": POOL, "max_overflow": 0})
    DBOS.launch()
    yield
    DBOS.destroy()


app = FastAPI(lifespan=lifespan, openapi_url=None)


async def run(statement: str, **values: Any) -> Any:
    return await store.sql_session().execute(text(statement), values)


async def count(key: str, amount: int) -> int:
    statement = """INSERT INTO counters VALUES (:key, :amount)
        ON CONFLICT (id) DO UPDATE SET count = counters.count + excluded.count RETURNING count"""
    return int((await run(statement, key=key, amount=amount)).scalar_one())


async def place(user: str, flight: str, hotel: str) -> list[Any]:
    room = "UPDATE hotels SET rooms_left = rooms_left - 1 WHERE id = :id AND rooms_left > 0"
    if (await run(room, id=hotel)).rowcount == 0:
        return [False, f"no room left in hotel {hotel}"]
    seat = "UPDATE flights SET seats_left = seats_left - 1 WHERE id = :id AND seats_left > 0"
    if (await run(seat, id=flight)).rowcount == 0:
        await run("UPDATE hotels SET rooms_left = rooms_left + 1 WHERE id = :id", id=hotel)
        return [False, f"no seat left on flight {flight}"]
    order = 'INSERT INTO orders ("user", hotel, flight) VALUES (:user, :hotel, :flight)'
    await run(order, user=user, hotel=hotel, flight=flight)
    return [True, "reserved"]


@DBOS.workflow()
async def counting(key: str, amount: int) -> int:
    return await store.run_tx_step_async(SERIALIZABLE, count, key, amount)


@DBOS.workflow()
async def reserving(user: str, flight: str, hotel: str) -> list[Any]:
    return await store.run_tx_step_async(SERIALIZABLE, place, user, flight, hotel)


async def once(request: Request, workflow: Any, *arguments: Any) -> Any:
    key = request.headers.get("idempotency-key")
    if key is None:
        return await workflow(*arguments)
    with SetWorkflowID(key):
        return await workflow(*arguments)


@app.get("/healthz")
async def healthz() -> str:
    return "ok"


@app.post("/call/counter/{key}/add")
async def add(key: str, request: Request) -> int:
    return await once(request, counting, key, await request.json())


@app.post("/hotel/add_hotel")
async def add_hotel(request: Request) -> None:
    await insert("hotels", await request.json())


@app.post("/hotel/add_flight")
async def add_flight(request: Request) -> None:
    await insert("flights", await request.json())


async def insert(table: str, body: dict[str, Any]) -> None:
    async with store.engine.begin() as connection:
        await connection.execute(text(f"INSERT INTO {table} VALUES (:id, :capacity)"), body)


@app.post("/hotel/reserve")
async def reserve(request: Request) -> list[Any]:
    body = await request.json()
    return await once(request, reserving, body["user"], body["flight"], body["hotel"])


@app.get("/hotel/audit")
async def audit() -> dict[str, Any]:
    async with store.engine.connect() as connection:
        statement = """SELECT coalesce((SELECT json_object_agg(id, rooms_left) FROM hotels), '{}')::text,
            coalesce((SELECT json_object_agg(id, seats_left) FROM flights), '{}')::text, (SELECT count(*) FROM orders)"""
        hotels, flights, orders = (await connection.execute(text(statement))).one()
        return {"hotels": json.loads(hotels), "flights": json.loads(flights), "orders": orders, "locks": 0}
