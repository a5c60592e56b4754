// Calls of a known shape and length, for measuring how they are scheduled.
import { service, query, Abort, type Context, type Request } from "millrace";
import { DAG, criticalPathMs } from "./_dag.ts";
import { MAX_SPIN_MS, isSpin, spin } from "./_spin.ts";

const MAX_CHAIN = 100;
const MAX_FAN_OUT = 1000;

export default service({
  echo: query((_ctx, input) => input),

  spin: query((_ctx, ms: number) => {
    if (!isSpin(ms)) throw new Abort(`ms must be a number from 0 to ${MAX_SPIN_MS}`);
    spin(ms);
    return ms;
  }),

  /** Calls the next of `length` entities, which calls the next; answers how many there were. */
  async chain(ctx, length: number): Promise<number> {
    if (!(length > 1)) return 1;
    return 1 + (await ctx.call("synthetic", `{chain}${length - 1}`, "chain", length - 1));
  },
});

/** The query parameter `name` as a whole number from `low` to `high`, or a reply that refuses it. */
function whole(request: Request, name: string, low: number, high: number) {
  const text = request.query.get(name) ?? "";
  const value = /^[0-9]{1,6}$/.test(text) ? Number(text) : -1;
  if (value >= low && value <= high) return { value };
  return { value, refused: { status: 400, body: { error: `${name} must be a whole number from ${low} to ${high}` } } };
}

export const routes = {
  "POST /echo"(_ctx: Context, request: Request) {
    const type = request.header("content-type") ?? "application/octet-stream";
    return { headers: { "content-type": type }, body: request.body };
  },

  "GET /spin"(_ctx: Context, request: Request) {
    const { value, refused } = whole(request, "ms", 0, MAX_SPIN_MS);
    if (refused) return refused;
    spin(value);
    return { body: { ms: value } };
  },

  async "GET /chain"(ctx: Context, request: Request) {
    const { value, refused } = whole(request, "length", 1, MAX_CHAIN);
    if (refused) return refused;
    return { body: { length: await ctx.call("synthetic", `{chain}${value}`, "chain", value) } };
  },

  async "GET /fan-out"(ctx: Context, request: Request) {
    const { value, refused } = whole(request, "calls", 1, MAX_FAN_OUT);
    if (refused) return refused;
    const calls = Array.from({ length: value }, (_, n) => ctx.call("synthetic", `{fan-out}${n}`, "echo", n + 1));
    const sum = (await Promise.all(calls)).reduce((total, n) => total + n, 0);
    return { body: { calls: value, sum } };
  },

  /** Starts each task when those it waits for are done; answers the order in which they ended. */
  async "GET /dag"(ctx: Context) {
    const ended: string[] = [];
    const running: Record<string, Promise<unknown>> = {};
    const run = async (name: string) => {
      const { ms, after } = DAG[name];
      await Promise.all(after.map((earlier) => running[earlier]));
      await ctx.call("synthetic", `{dag}${name}`, "spin", ms);
      ended.push(name);
    };
    for (const name of Object.keys(DAG)) running[name] = run(name);
    await Promise.all(Object.values(running));
    return { body: { tasks: ended.length, critical_path_ms: criticalPathMs(DAG), ended } };
  },
};
