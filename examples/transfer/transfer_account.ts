// An account. Amounts are whole, in the smallest unit of the currency, so sums are exact.
import { service, query, Abort, type Context } from "millrace";

export default service({
  open(ctx, balance: number) {
    if (!Number.isSafeInteger(balance) || balance < 0) throw new Abort("balance must be a whole number from 0");
    if (ctx.get("balance") !== undefined) throw new Abort(`account ${ctx.key} is open already`);
    ctx.set("balance", balance);
    return balance;
  },
  deposit: (ctx, amount: number) => change(ctx, checkAmount(amount)),
  withdraw: (ctx, amount: number) => change(ctx, -checkAmount(amount)),
  balance: query((ctx) => ctx.get("balance") ?? null),

  // What a saga needs more. It changes accounts one after the other, so a change that was committed may
  // have to be undone: it is noted under the saga's id until the saga has ended.
  depositFor(ctx, { saga, amount }: { saga: string; amount: number }) {
    ctx.set(`saga/${saga}`, checkAmount(amount));
    return change(ctx, amount);
  },
  withdrawFor(ctx, { saga, amount }: { saga: string; amount: number }) {
    ctx.set(`saga/${saga}`, -checkAmount(amount));
    return change(ctx, -amount);
  },
  /** Undoes the change of a saga, if there was one. A deposit that is spent already leaves a debt. */
  undo(ctx, saga: string) {
    const amount = ctx.get<number>(`saga/${saga}`);
    if (amount === undefined) return;
    ctx.set("balance", ctx.get("balance") - amount);
    ctx.delete(`saga/${saga}`);
  },
  /** Forgets how to undo the change of a saga. */
  settle(ctx, saga: string) {
    ctx.delete(`saga/${saga}`);
  },
});

function change(ctx: Context, amount: number): number {
  const before = ctx.get("balance");
  if (before === undefined) throw new Abort(`there is no account ${ctx.key}`);
  const balance = before + amount;
  if (amount < 0 && balance < 0) throw new Abort("insufficient funds", { balance: before });
  if (!Number.isSafeInteger(balance)) throw new Abort("the balance would lose precision");
  ctx.set("balance", balance);
  return balance;
}

function checkAmount(amount: unknown): number {
  if (Number.isSafeInteger(amount) && Number(amount) > 0) return Number(amount);
  throw new Abort("amount must be a whole number above 0");
}
