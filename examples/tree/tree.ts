// One transaction over two services at once: both count, or neither does.
import { Abort, type RouteContext, type Routes } from "millrace";

export const routes: Routes = {
  "POST /req"(ctx, request) {
    const key = request.json()?.key;
    if (typeof key !== "string") throw new Abort("key must be a string");
    return both(ctx, key, "req");
  },
  // Only queries: both are read from one consistent state, so they never differ.
  "GET /counters": (ctx, request) => both(ctx, request.query.get("key") ?? "", "count"),
};

/** Calls both backends in parallel, inside the transaction of `ctx`. */
function both(ctx: RouteContext, key: string, handler: string): Promise<[number, number]> {
  return Promise.all([
    ctx.call("tree_backend1", key, handler),
    // A shard is chosen by a hash of the key alone. Another key is, in general, another shard, on
    // another core or node. The same key, or a common {tag}, would bring the two together.
    ctx.call("tree_backend2", `${key}/2`, handler),
  ]);
}
