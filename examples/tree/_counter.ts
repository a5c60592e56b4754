import { service, query } from "millrace";

/** A service that counts its calls. Both backends are one. */
export const counter = () =>
  service({
    /** Counts this call, and answers how many there were before it. */
    req(ctx) {
      const count = ctx.get("count") ?? 0;
      ctx.set("count", count + 1);
      return count;
    },
    count: query((ctx) => ctx.get("count") ?? 0),
  });
