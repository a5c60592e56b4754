// Everything a function should not do. Each handler first writes `mark`, which must never be seen.
import { service, query, Abort, type Context, type Request } from "millrace";

type Deed = (ctx: Context, input: any) => unknown;

const marked = (deed: Deed) => (ctx: Context, input: any) => {
  ctx.set("mark", "left behind");
  return deed(ctx, input);
};

const deeper = (): number => deeper() + 1;

export default service({
  /** Whether the world is as it should be. */
  ok(ctx, n: number) {
    const polluted = ({} as any).polluted !== undefined || [1, 2].map((x) => x + 1).join() !== "2,3";
    if (polluted) throw new Error("the prototypes are polluted");
    ctx.set("calls", (ctx.get("calls") ?? 0) + 1);
    return n + 1;
  },

  loop: marked(() => {
    for (;;) {}
  }),
  caughtLoop: marked(() => {
    for (;;) try { for (;;) {} } catch {} finally { for (;;) {} }
  }),
  // Each callee would have the whole limit to itself.
  caughtCallees: marked(async (ctx) => {
    for (let callee = 0; callee < 1000; callee++) try { await ctx.call("hostile", `${ctx.key}/${callee}`, "loop"); } catch {}
  }),
  // Holds nothing from one turn to the next, so that a fast machine is not at the memory limit first.
  microtasks: marked(async () => {
    for (;;) await null;
  }),
  regex: marked(() => /^(a+)+$/.test("a".repeat(40) + "b")),
  // Operators and functions that QuickJS itself would not interrupt.
  products: marked(() => {
    const large = (1n << 500_000n) - 1n;
    for (let count = 0; count < 60; count++) large * large;
  }),
  bigText: marked(() => `${(1n << 1_000_000n) - 1n}`.length),
  textAsBig: marked(() => {
    for (let count = 0; count < 20; count++) 1n < "9".repeat(300_000);
  }),
  proxyNames: marked(() => {
    const names = Array.from({ length: 50_000 }, (_, number) => number.toString(36));
    for (let count = 0; count < 20; count++) Object.keys(new Proxy({}, { ownKeys: () => names }));
  }),
  noElements: marked(() => [].reverse.call({ length: 2 ** 53 - 1 })),
  recursion: marked(() => deeper()),
  caughtRecursion: marked(() => {
    const down = (): number => { try { return down() + 1; } catch { return 0; } };
    return down();
  }),
  heap: marked(() => {
    const all: unknown[] = [];
    for (;;) all.push("x".repeat(1_000_000) + all.length);
  }),
  gigabyte: marked(() => "x".repeat(2 ** 30 - 25).length),
  buffer: marked(() => new Uint8Array(1e9).length),
  pollute: marked(() => {
    (Object.prototype as any).polluted = 1;
  }),
  polluteArray: marked(() => {
    Array.prototype.map = (() => "x") as any;
  }),
  polluteByInput: marked((_ctx, input) => {
    const merge = (into: any, from: any) => {
      for (const key in from) typeof from[key] === "object" ? merge((into[key] ??= {}), from[key]) : (into[key] = from[key]);
    };
    merge({}, input);
  }),
  never: marked(() => new Promise(() => {})),
  cyclic: marked(() => {
    const payload: any = {};
    payload.self = payload;
    throw payload;
  }),
  cyclicAbort: marked(() => {
    const payload: any = {};
    payload.self = payload;
    throw new Abort("cyclic", payload);
  }),
  cyclicOutput: marked(() => {
    const output: any = {};
    output.self = output;
    return output;
  }),
  throwNothing: marked(() => {
    throw undefined;
  }),
  reach: marked(async (ctx, name: string) => await ctx.call("hostile", ctx.key, name, null)),
  reachService: marked(async (ctx, name: string) => await ctx.call(name, ctx.key, "ok", null)),
  reachKey: marked(async (ctx, length: number) => await ctx.call("hostile", "k".repeat(length), "ok", 1)),
  sendKey: marked((ctx, length: number) => ctx.send("hostile", "k".repeat(length), "ok", 1)),
  output: marked(() => "x".repeat(70_000)),
  deepOutput: marked(() => {
    let nested: unknown = [];
    for (let level = 0; level < 20_000; level += 1) nested = [nested];
    return nested;
  }),
  manyWrites: marked((ctx) => {
    for (let n = 0; n < 101; n += 1) ctx.set(`field/${n}`, n);
  }),
  bigValue: marked((ctx) => ctx.set("big", "x".repeat(5000))),
  longField: marked((ctx) => ctx.set("f".repeat(1025), 1)),
  manyMessages: marked((ctx) => {
    for (let n = 0; n < 11; n += 1) ctx.send("hostile", `m${n}`, "ok", 1);
  }),
  manyOperations: marked(async (ctx) => {
    await Promise.all(Array.from({ length: 17 }, () => ctx.call("hostile", ctx.key, "ok", 1)));
  }),
  chain: marked(async (ctx, n: number) => await ctx.call("hostile", ctx.key, "chain", n + 1)),
  bigInput: marked(async (ctx) => await ctx.call("hostile", ctx.key, "ok", "x".repeat(70_000))),
  _private: marked(() => "private"),

  queryWrites: query((ctx) => (ctx as Context).set("mark", "left behind")),
  queryDeletes: query((ctx) => (ctx as Context).delete("mark")),
  querySends: query((ctx) => (ctx as Context).send("hostile", "other", "ok", 1)),
  queryCalls: query(async (ctx) => await ctx.call("hostile", ctx.key, "ok", 1)),

  /** Starts a call that fails and does not wait for it. */
  forgets(ctx) {
    ctx.set("kept", true);
    ctx.call("hostile", ctx.key, "cyclic", null);
    return "done";
  },
});

export const routes = {
  "GET /loop": () => {
    for (;;) {}
  },
  "GET /never": () => new Promise(() => {}),
  "GET /status": () => ({ status: 99 }),
  "GET /headers": () => ({ headers: { "bad name": "x" } }),
  "GET /split": () => ({ headers: { "x-a": "1\r\nx-b: 2" } }),
  "GET /large": () => ({ body: "x".repeat(70_000) }),
  "GET /ok": (_ctx: Context, request: Request) => ({ body: request.method }),
};
