// What `millrace cluster demo --load` calls: accounts that pay each other. The balances of all accounts add up to 0, and
// `paid` counts the payments, so that one that was lost or done twice is seen.
import { query, service } from "millrace";

export default service({
  async pay(ctx, { to, amount }: { to: string; amount: number }) {
    ctx.set("balance", (ctx.get("balance") ?? 0) - amount);
    ctx.set("paid", (ctx.get("paid") ?? 0) + 1);
    await ctx.call("demo_account", to, "take", amount);
  },
  take(ctx, amount: number) {
    ctx.set("balance", (ctx.get("balance") ?? 0) + amount);
  },
  books: query((ctx) => ({ balance: ctx.get("balance") ?? 0, paid: ctx.get("paid") ?? 0 })),
});
