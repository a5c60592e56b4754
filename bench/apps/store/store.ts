// One value an entity: the smallest write and the smallest read of a given size.
import { service, query } from "millrace";

export default service({
  put(ctx, value: string) {
    ctx.set("value", value);
    return value.length;
  },
  get: query((ctx) => ctx.get("value") ?? null),
  relay: query((ctx, key: string) => ctx.call("store", key, "get")),
});
