// The smallest service: one number an entity, however many callers.
import { service, query, Abort } from "millrace";

export default service({
  add(ctx, n: number) {
    const value = (ctx.get("value") ?? 0) + n;
    if (!Number.isSafeInteger(n) || !Number.isSafeInteger(value)) {
      throw new Abort("add takes a whole number, and the sum must stay within 2^53");
    }
    ctx.set("value", value);
    return value;
  },
  value: query((ctx) => ctx.get("value") ?? 0),
});
