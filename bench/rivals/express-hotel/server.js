// The hotel reservation on Express and PostgreSQL: the same HTTP contract, every reservation one
// SERIALIZABLE transaction, retried when PostgreSQL asks for it.
//
//   PORT        where it listens, on 127.0.0.1
//   PGHOST      the folder of PostgreSQL's socket; PGUSER, PGDATABASE as libpq takes them
//   PROCESSES   web processes (1), each with its share of POOL connections (16)
//   STATEMENTS  "function": a reservation is one call of a stored function, one round trip;
//               "separate": BEGIN, three statements, COMMIT, each a round trip
"use strict";

const cluster = require("node:cluster");
const express = require("express");
const { Pool } = require("pg");

const PROCESSES = Number(process.env.PROCESSES || 1);
const POOL = Math.max(1, Math.floor(Number(process.env.POOL || 16) / PROCESSES));
const ATTEMPTS = 1000;
// serialization_failure and deadlock_detected: the transaction did not happen and may be run again.
const RETRIED = new Set(["40001", "40P01"]);

// Named, so that each connection parses and plans them once.
const RESERVE = { name: "reserve", text: "SELECT ok, message FROM reserve($1, $2, $3)" };
const TAKE_ROOM = {
  name: "take-room",
  text: "UPDATE hotels SET rooms_left = rooms_left - 1 WHERE id = $1 AND rooms_left > 0",
};
const TAKE_SEAT = {
  name: "take-seat",
  text: "UPDATE flights SET seats_left = seats_left - 1 WHERE id = $1 AND seats_left > 0",
};
const PLACE_ORDER = {
  name: "place-order",
  text: 'INSERT INTO orders ("user", hotel, flight) VALUES ($1, $2, $3)',
};
const ADD_HOTEL = {
  name: "add-hotel",
  text: "INSERT INTO hotels VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET rooms_left = excluded.rooms_left",
};
const ADD_FLIGHT = {
  name: "add-flight",
  text: "INSERT INTO flights VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET seats_left = excluded.seats_left",
};
const AUDIT = {
  name: "audit",
  text: `SELECT coalesce((SELECT json_object_agg(id, rooms_left) FROM hotels), '{}') AS hotels,
    coalesce((SELECT json_object_agg(id, seats_left) FROM flights), '{}') AS flights,
    (SELECT count(*)::integer FROM orders) AS orders,
    (SELECT count(*)::integer FROM pg_locks
      WHERE relation IN ('hotels'::regclass, 'flights'::regclass, 'orders'::regclass)
        AND mode = 'RowExclusiveLock') AS locks`,
};

const pool = new Pool({
  max: POOL,
  idleTimeoutMillis: 0,
  // Also what a statement outside of BEGIN runs under.
  options: "-c default_transaction_isolation=serializable",
});
pool.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

// run sends one statement. pool.query would close the connection after any error, so every serialization failure would
// cost a new connection.
async function run(statement, values) {
  const client = await pool.connect();
  try {
    return (await client.query({ ...statement, values })).rows;
  } finally {
    client.release();
  }
}

// again runs a transaction until PostgreSQL reports no conflict.
async function again(transaction) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transaction();
    } catch (error) {
      if (!RETRIED.has(error.code) || attempt >= ATTEMPTS) throw error;
      // The winner has committed when the loser learns of it: the first retry need not wait.
      if (attempt > 1) await new Promise((done) => setTimeout(done, Math.random() * Math.min(attempt, 10)));
    }
  }
}

async function reserveByFunction(user, flight, hotel) {
  const [{ ok, message }] = await run(RESERVE, [user, hotel, flight]);
  return [ok, message];
}

async function reserveByStatements(user, flight, hotel) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    let reply = [true, "reserved"];
    if ((await client.query({ ...TAKE_ROOM, values: [hotel] })).rowCount === 0) {
      reply = [false, `no room left in hotel ${hotel}`];
    } else if ((await client.query({ ...TAKE_SEAT, values: [flight] })).rowCount === 0) {
      reply = [false, `no seat left on flight ${flight}`];
    } else {
      await client.query({ ...PLACE_ORDER, values: [user, hotel, flight] });
    }
    await client.query(reply[0] ? "COMMIT" : "ROLLBACK");
    return reply;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

const reserve = process.env.STATEMENTS === "separate" ? reserveByStatements : reserveByFunction;

async function serve() {
  // Connects before the first request, so that start.sh can list all processes.
  const clients = await Promise.all(Array.from({ length: POOL }, () => pool.connect()));
  for (const client of clients) client.release();

  const app = express();
  // Off, because the other side has neither.
  app.disable("x-powered-by");
  app.disable("etag");
  app.get("/healthz", (_request, response) => response.send("ok"));
  app.use(express.json());

  app.post("/hotel/add_hotel", async ({ body }, response) => {
    await again(() => run(ADD_HOTEL, [body.id, body.capacity]));
    response.json(null);
  });
  app.post("/hotel/add_flight", async ({ body }, response) => {
    await again(() => run(ADD_FLIGHT, [body.id, body.capacity]));
    response.json(null);
  });
  app.post("/hotel/reserve", async ({ body }, response) => {
    response.json(await again(() => reserve(body.user, body.flight, body.hotel)));
  });
  app.get("/hotel/audit", async (_request, response) => {
    response.json((await again(() => run(AUDIT)))[0]);
  });

  const server = app.listen(Number(process.env.PORT || 8081), "127.0.0.1");
  server.keepAliveTimeout = 120_000;
}

if (PROCESSES > 1 && cluster.isPrimary) {
  for (let index = 0; index < PROCESSES; index++) cluster.fork();
  cluster.on("exit", () => process.exit(1));
} else {
  serve();
}
