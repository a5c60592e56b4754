import { service } from "millrace";

export default service({
  /** Counts this call, and answers how many there were before it. */
  req(ctx) {
    const count = ctx.get("count") ?? 0;
    ctx.set("count", count + 1);
    return count;
  },
});
