// One entity a key, one transaction a request: the yardstick for chain and tree.
import { service, query, Abort, type Routes } from "millrace";

export default service({
  /** Counts this call, and answers how many there were before it. */
  req(ctx) {
    const count = ctx.get("count") ?? 0;
    ctx.set("count", count + 1);
    return count;
  },
  count: query((ctx) => ctx.get("count") ?? 0),
});

export const routes: Routes = {
  // Not async: the handler's promise is the reply, so a request costs one call and nothing else.
  "POST /req"(ctx, request) {
    const key = request.json()?.key;
    if (typeof key !== "string") throw new Abort("key must be a string");
    return ctx.call("single", key, "req");
  },
};
