// Keys and values in one entity, and a long job cut into short transactions.
import { service, query, Abort, type Context, type Request } from "millrace";

const MAX_KEYS = 262_143;
const MAX_SIZE = 4096;
const MAX_BYTES = 64 << 20;

// Writing a step takes a few milliseconds, so other calls of this shard never wait long for it.
const STEP_KEYS = 2048;

type Fill = {
  id: string;
  keys: number;
  size: number;
  written: number; // values below this key are stored
  end: number; // the fill is over here: also past what an earlier, larger fill has left
};

export default service({
  /** Gives the keys 0 to keys - 1 their values, as one change for whoever reads. */
  fill(ctx, { keys, size }: { keys: number; size: number }) {
    const wrong = check(keys, size);
    if (wrong) throw new Abort(wrong);
    const before: Fill | undefined = ctx.get("fill");
    const fill = { id: ctx.uuid(), keys, size, written: 0, end: Math.max(keys, before?.end ?? 0) };
    return progress(writeStep(ctx, fill));
  },

  /** Goes on with a fill; sent by the step before, exactly once. */
  step(ctx, id: string) {
    const fill: Fill | undefined = ctx.get("fill");
    if (fill?.id === id) writeStep(ctx, fill);
  },

  get: query((ctx, key: number) => {
    const fill: Fill | undefined = ctx.get("fill");
    if (fill === undefined || key >= fill.keys) return null;
    // What the fill has not stored yet is computed, so that a get is right as soon as it is answered.
    return key < fill.written ? ctx.get(`value/${key}`) : valueOf(key, fill.size);
  }),

  progress: query((ctx) => progress(ctx.get("fill") ?? { keys: 0, size: 0, written: 0 })),
});

function writeStep(ctx: Context, fill: Fill): Fill {
  const stop = Math.min(fill.written + STEP_KEYS, fill.end);
  for (let key = fill.written; key < stop; key += 1) {
    if (key < fill.keys) ctx.set(`value/${key}`, valueOf(key, fill.size));
    else ctx.delete(`value/${key}`);
  }
  const isOver = stop === fill.end;
  const next = { ...fill, written: stop, end: isOver ? fill.keys : fill.end };
  ctx.set("fill", next);
  if (!isOver) ctx.send("kv", ctx.key, "step", fill.id);
  return next;
}

function progress({ keys, size, written }: { keys: number; size: number; written: number }) {
  return { keys, size, written: Math.min(keys, written) };
}

/** `size` bytes of ASCII that begin with the key, so a reader can tell whose value it got. */
function valueOf(key: number, size: number): string {
  const unit = `${key}.`;
  return unit.repeat(Math.ceil(size / unit.length)).slice(0, size);
}

function check(keys: unknown, size: unknown): string | undefined {
  const isBetween = (number: unknown, high: number) => Number.isInteger(number) && Number(number) >= 1 && Number(number) <= high;
  if (!isBetween(keys, MAX_KEYS)) return `keys must be a whole number from 1 to ${MAX_KEYS}`;
  if (!isBetween(size, MAX_SIZE)) return `size must be a whole number from 1 to ${MAX_SIZE}`;
  return Number(keys) * Number(size) > MAX_BYTES ? `keys × size must not exceed ${MAX_BYTES}` : undefined;
}

const refuse = (status: number, error: string) => ({ status, body: { error } });

export const routes = {
  async "POST /fill"(ctx: Context, request: Request) {
    let input;
    try {
      input = request.json();
    } catch {
      return refuse(400, "the body is not JSON");
    }
    const wrong = check(input?.keys, input?.size);
    if (wrong) return refuse(400, wrong);
    return { body: await ctx.call("kv", "kv", "fill", { keys: input.keys, size: input.size }) };
  },

  async "GET /fill"(ctx: Context) {
    return { body: await ctx.call("kv", "kv", "progress", null) };
  },

  async "GET /get"(ctx: Context, request: Request) {
    const key = request.query.get("key") ?? "";
    if (!/^[0-9]{1,9}$/.test(key)) return refuse(400, "key must be a whole number from 0");
    const value = await ctx.call("kv", "kv", "get", Number(key));
    if (value === null) return refuse(404, `there is no key ${key}`);
    return { headers: { "content-type": "application/octet-stream" }, body: value };
  },
};
