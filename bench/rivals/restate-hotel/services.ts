// The hotel reservation on Restate: hotels, flights and users are virtual objects. A reservation is a durable handler
// that calls them in turn. If one call fails, it undoes the earlier ones, because Restate has no transaction over several
// objects. Clients call Restate's own ingress. Its paths /hotel/add_hotel, /hotel/add_flight, /hotel/reserve and
// /hotel/audit are those of the contract.
//
//   SERVICE_PORT  where the Restate server reaches these handlers, on 127.0.0.1
//   ADMIN_PORT    the Restate server's admin API, which the audit reads
//   PROCESSES     how many of this process to run (1); connections are dealt out in turn
import cluster from "node:cluster";
import { createServer } from "node:http2";
import { createEndpointHandler, object, service, TerminalError } from "@restatedev/restate-sdk";
import type { Context, ObjectContext } from "@restatedev/restate-sdk";

// By default Restate keeps the journal of a finished invocation for a day. Nobody reads it here, and the other side keeps
// none.
const options = { journalRetention: 0 };

// stock is a virtual object that counts the free places of one hotel or flight.
const handlers = {
  add: async (ctx: ObjectContext, capacity: number): Promise<void> => {
    ctx.set("left", capacity);
  },
  take: async (ctx: ObjectContext): Promise<boolean> => {
    const left = (await ctx.get<number>("left")) ?? 0;
    if (left <= 0) return false;
    ctx.set("left", left - 1);
    return true;
  },
  giveBack: async (ctx: ObjectContext): Promise<void> => {
    ctx.set("left", ((await ctx.get<number>("left")) ?? 0) + 1);
  },
};
const rooms = object({ name: "rooms", handlers, options });
const seats = object({ name: "seats", handlers, options });

// The orders of one user, each under its own id.
const orders = object({
  name: "orders",
  handlers: {
    place: async (ctx: ObjectContext, order: { id: string; flight: string; hotel: string }): Promise<void> => {
      ctx.set(order.id, { flight: order.flight, hotel: order.hotel });
    },
  },
  options,
});

type Addition = { id: string; capacity: number };
type Reservation = { user: string; flight: string; hotel: string };

async function reserve(ctx: Context, { user, flight, hotel }: Reservation): Promise<[boolean, string]> {
  const undo: (() => Promise<void>)[] = [];
  try {
    if (!(await ctx.objectClient(rooms, hotel).take())) return [false, `no room left in hotel ${hotel}`];
    undo.push(() => ctx.objectClient(rooms, hotel).giveBack());
    if (!(await ctx.objectClient(seats, flight).take())) {
      for (const step of undo.reverse()) await step();
      return [false, `no seat left on flight ${flight}`];
    }
    undo.push(() => ctx.objectClient(seats, flight).giveBack());
    await ctx.objectClient(orders, user).place({ id: ctx.rand.uuidv4(), flight, hotel });
    return [true, "reserved"];
  } catch (error) {
    // Only a terminal error (a cancelled invocation, say) ends a handler; others are retried.
    if (error instanceof TerminalError) for (const step of undo.reverse()) await step();
    throw error;
  }
}

// query asks the server's introspection, the way to look over all keys of an object.
async function query(text: string): Promise<Record<string, unknown>[]> {
  const response = await fetch(`http://127.0.0.1:${process.env.ADMIN_PORT}/query`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json" },
    body: JSON.stringify({ query: text }),
  });
  if (!response.ok) throw new Error(`the query failed: ${response.status} ${await response.text()}`);
  return ((await response.json()) as { rows: Record<string, unknown>[] }).rows;
}

async function left(name: string): Promise<Record<string, number>> {
  const rows = await query(
    `SELECT service_key AS id, value_utf8 AS value FROM state WHERE service_name = '${name}' AND key = 'left'`,
  );
  return Object.fromEntries(rows.map(({ id, value }) => [id, JSON.parse(value as string)]));
}

async function count(text: string): Promise<number> {
  return Number((await query(text))[0].count);
}

const hotel = service({
  name: "hotel",
  handlers: {
    add_hotel: async (ctx: Context, { id, capacity }: Addition): Promise<null> => {
      await ctx.objectClient(rooms, id).add(capacity);
      return null;
    },
    add_flight: async (ctx: Context, { id, capacity }: Addition): Promise<null> => {
      await ctx.objectClient(seats, id).add(capacity);
      return null;
    },
    reserve,
    audit: (ctx: Context) =>
      ctx.run("audit", async () => ({
        hotels: await left("rooms"),
        flights: await left("seats"),
        orders: await count("SELECT count(*) AS count FROM state WHERE service_name = 'orders'"),
        locks: await count("SELECT count(*) AS count FROM sys_keyed_service_status"),
      })),
  },
  options,
});

const processes = Number(process.env.PROCESSES || 1);
if (processes > 1 && cluster.isPrimary) {
  for (let index = 0; index < processes; index++) cluster.fork();
  cluster.on("exit", () => process.exit(1));
} else {
  createServer(createEndpointHandler({ services: [rooms, seats, orders, hotel] })).listen(
    Number(process.env.SERVICE_PORT),
    "127.0.0.1",
  );
}
