// What a file can say, so that a test can compare what it does inside the store and in a worker.
import { Abort, query, service, type Context, type Routes, type Schedules } from "millrace";
import { total } from "./_money";
import { Size, Label } from "./lib/label.ts";
import rates from "./rates.json";

type Item = { name: string; price: number };

export default service({
  put(ctx, item: Item) {
    if (typeof item?.name !== "string") throw new Abort("an item has a name", { item });
    ctx.set(`item/${item.name}`, item);
    return this._count(ctx);
  },
  remove: (ctx, name: string) => ctx.delete(`item/${name}`),
  page: query((ctx, options: { after?: string; limit?: number } | null) =>
    ctx.entries<Item>({ prefix: "item/", after: options?.after, limit: options?.limit }),
  ),
  names: query((ctx) => ctx.fields({ prefix: "item/" })),
  value: query((ctx) => total(ctx.entries<Item>({ prefix: "item/" }).map(([, item]) => item.price)) * rates.euro),
  async move(ctx, { to, name }: { to: string; name: string }) {
    const item = ctx.get<Item>(`item/${name}`);
    if (item === undefined) throw new Abort(`there is no ${name}`);
    ctx.delete(`item/${name}`);
    await ctx.call("shelf", to, "put", item);
    // A callee's refusal can be caught; then only the callee's writes are undone.
    return ctx.call("shelf", to, "put", {}).catch((error) => [error.name, error.message, error.payload]);
  },
  async copies(ctx, names: string[]) {
    return Promise.all(names.map((name) => ctx.call("shelf", `${ctx.key}-${name}`, "put", { name, price: 1 })));
  },
  later(ctx, name: string) {
    return ctx.send("shelf", ctx.key, "put", { name, price: 5 }, { delay_ms: 1 }) ?? "no id";
  },
  order: (ctx, guest: string) => ctx.send("order", guest, "run", { shelf: ctx.key }),
  order_as(ctx, id: string) {
    const given = ctx.send("order", "ann", "run", { shelf: ctx.key }, { id });
    ctx.signal(id, "paid", { amount: 7 });
    return given;
  },
  who: (ctx) => [ctx.key, Array.from(ctx.keyBytes), typeof ctx.id, new Label(Size.Large).text],
  bytes(ctx) {
    ctx.set("bytes", new Uint8Array([0, 255]));
    const found = ctx.get<Uint8Array>("bytes");
    return [found instanceof Uint8Array, Array.from(found ?? [])];
  },
  same_time: (ctx) => [Date.now() === ctx.now(), new Date().getTime() === ctx.now(), typeof Date(), Math.random() < 1],
  hashes: (ctx) => [
    crypto.sha1("a", "hex"),
    crypto.sha256("a", "base64url"),
    crypto.hmacSha256("key", "a", "base64"),
    crypto.timingSafeEqual("a", "b"),
    base64.encode("ä?>"),
    base64.encode("ä?>", "base64url"),
    Array.from(base64.decode("w6Q_Pg")),
    crypto.randomUUID().length,
    crypto.getRandomValues(new Uint8Array(3)).length,
  ],
  nothing: () => undefined,
  unknown_service: (ctx) => codeOf(() => ctx.call("nobody", "k", "h")),
  unknown_handler: (ctx) => codeOf(() => ctx.send("shelf", "k", "nobody")),
  query_that_writes: query((ctx) => (ctx as Context).set("x", 1)),
  fails: () => (null as any).property,
  _count: (ctx: Context) => ctx.fields({ prefix: "item/" }).length,
});

function codeOf(act: () => unknown): unknown {
  try {
    act();
    return "nothing was thrown at once";
  } catch (error) {
    return (error as any).code;
  }
}

export const routes: Routes = {
  "GET /echo/:name": (ctx, request) => [
    request.method,
    request.path,
    request.params,
    request.query.getAll("q"),
    request.header("X-Test"),
    ctx.key ?? "no key",
  ],
  "POST /text": (ctx, request) => ({ status: 201, headers: { "x-length": request.text().length }, body: request.text() }),
  "POST /raw": (ctx, request) => request.body,
  "POST /json": (ctx, request) => ({ body: request.json() }),
  "/items/:shelf": {
    GET: (ctx, request) => ctx.call("shelf", request.params.shelf, "names"),
    "POST /:name": async (ctx, request) => {
      const { shelf, name } = request.params;
      await ctx.call("shelf", shelf, "put", { name, price: 3 });
    },
  },
  "POST /refuse": () => {
    throw new Abort("not today", { day: 1 });
  },
};

export const schedules: Schedules = {
  yearly: { cron: "@yearly", handler: "put", key: "main", input: { name: "cake", price: 10 } },
};
