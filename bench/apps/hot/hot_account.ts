import { service, query, Abort } from "millrace";

export default service({
  open(ctx, balance: number) {
    ctx.set("balance", balance);
    return balance;
  },
  withdraw(ctx, amount: number) {
    const balance = ctx.get("balance") - amount;
    if (balance < 0) throw new Abort("insufficient funds");
    ctx.set("balance", balance);
    return balance;
  },
  deposit(ctx, amount: number) {
    const balance = ctx.get("balance") + amount;
    ctx.set("balance", balance);
    return balance;
  },
  balance: query((ctx) => ctx.get("balance") ?? 0),
});
