// A number an entity, with the operations of a calculator.
import { service, query, Abort, type Context } from "millrace";

export default service({
  add: (ctx, n: number) => change(ctx, n, 1),
  subtract: (ctx, n: number) => change(ctx, n, -1),
  get: query((ctx) => ctx.get("value") ?? 0),
});

function change(ctx: Context, n: number, sign: number): number {
  if (typeof n !== "number") throw new Abort("the input must be a number");
  const value = (ctx.get("value") ?? 0) + sign * n;
  if (!Number.isFinite(value)) throw new Abort("the result is too large");
  ctx.set("value", value);
  return value;
}
