// Accounts whose sum never changes, and counters that are reached by messages.
import { service, query, Abort } from "millrace";

export default service({
  open(ctx, amount: number) {
    if (ctx.get("balance") === undefined) ctx.set("balance", amount);
    return ctx.get("balance");
  },

  async transfer(ctx, { to, amount }: { to: string; amount: number }) {
    const balance = ctx.get("balance") ?? 0;
    if (balance < amount) throw new Abort("insufficient funds");
    ctx.set("balance", balance - amount);
    await ctx.call("ledger", to, "take", amount);
  },

  take(ctx, amount: number) {
    ctx.set("balance", (ctx.get("balance") ?? 0) + amount);
  },

  balance: query((ctx) => ctx.get("balance") ?? 0),

  /** The sum over accounts of this shard, at one moment. */
  total: query(async (ctx, keys: string[]) => {
    const balances = await Promise.all(keys.map((key) => ctx.call("ledger", key, "balance", null)));
    return balances.reduce((sum, balance) => sum + balance, 0);
  }),

  /** Counts itself, and sends one increment to each of `to`, wherever they live. */
  relay(ctx, to: string[]) {
    const sent = (ctx.get("sent") ?? 0) + 1;
    ctx.set("sent", sent);
    for (const key of to) ctx.send("ledger", key, "received", null);
    return sent;
  },

  received(ctx) {
    ctx.set("received", (ctx.get("received") ?? 0) + 1);
  },

  seen: query((ctx) => ctx.get("received") ?? 0),
});
