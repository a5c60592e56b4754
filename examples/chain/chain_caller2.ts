import { service } from "millrace";

export default service({
  async req(ctx, spread: boolean) {
    const key = spread ? `${ctx.key}/backend` : ctx.key;
    return [await ctx.call("chain_backend", key, "req")];
  },
});
