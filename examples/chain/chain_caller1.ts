import { service } from "millrace";

export default service({
  async req(ctx, spread: boolean) {
    // A shard is chosen by the key alone: with its own key, the next entity lives on the same shard.
    const key = spread ? `${ctx.key}/caller2` : ctx.key;
    return [await ctx.call("chain_caller2", key, "req", spread)];
  },
});
