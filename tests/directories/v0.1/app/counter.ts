import { service, query, workflow } from "millrace";

export default service({
  add(ctx, by: number) {
    const total = (ctx.get("total") ?? 0) + by;
    ctx.set("total", total);
    return total;
  },
  later(ctx, by: number) {
    ctx.send("counter", "sent", "add", by, { delay_ms: 4_000 });
  },
  move(ctx, by: number) {
    ctx.set("total", (ctx.get("total") ?? 0) - by);
    return ctx.call("counter", "other", "add", by);
  },
  waits: workflow(async (ctx) => {
    await ctx.call("counter", "started", "add", 1);
    const by = await ctx.wait("go");
    return await ctx.call("counter", "finished", "add", by);
  }),
  show: query((ctx) => ctx.get("total") ?? 0),
});
