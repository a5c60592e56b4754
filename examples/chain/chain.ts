// A transaction through three services: the route calls caller1, which calls caller2, which calls backend.
import { Abort, type Routes } from "millrace";

export const routes: Routes = {
  "POST /req"(ctx, request) {
    const { key, spread = false } = request.json() ?? {};
    if (typeof key !== "string") throw new Abort("key must be a string");
    return ctx.call("chain_caller1", key, "req", spread);
  },
};
