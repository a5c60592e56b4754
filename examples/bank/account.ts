// Money moves between entities in one transaction, or not at all.
import { service, query, Abort, type Context } from "millrace";

const HISTORY_ROWS = 1000;

export default service({
  deposit(ctx, amount: number) {
    return book(ctx, "deposit", check(amount));
  },
  withdraw(ctx, amount: number) {
    return book(ctx, "withdraw", -check(amount));
  },
  balance: query((ctx) => ctx.get("balance") ?? 0),
  async transfer(ctx, { to, amount }: { to: string; amount: number }) {
    if (typeof to !== "string" || to === "") throw new Abort("to must name an account");
    book(ctx, "transfer", -check(amount), to);
    await ctx.call("account", to, "deposit", amount);
  },
  history: query((ctx, input: { after?: string; limit?: number } | null) => {
    const rows = ctx.entries({ prefix: "history/", after: input?.after, limit: input?.limit ?? 100 });
    return rows.map(([field, row]) => ({ id: field, ...row }));
  }),
});

function check(amount: unknown): number {
  if (typeof amount !== "number" || !Number.isFinite(amount) || amount <= 0) {
    throw new Abort("amount must be a positive number");
  }
  return amount;
}

function book(ctx: Context, kind: string, change: number, to?: string): number {
  const before = ctx.get("balance") ?? 0;
  const balance = before + change;
  if (balance < 0) throw new Abort("insufficient funds", { balance: before });
  if (balance > Number.MAX_SAFE_INTEGER) throw new Abort("the balance would lose precision");
  ctx.set("balance", balance);

  // Zero-padded, so that the order of the fields is the order of the bookings.
  const row = (ctx.get("bookings") ?? 0) + 1;
  ctx.set("bookings", row);
  ctx.set(historyField(row), { kind, change, balance, at: ctx.now(), ...(to && { to }) });
  if (row > HISTORY_ROWS) ctx.delete(historyField(row - HISTORY_ROWS));
  return balance;
}

function historyField(row: number): string {
  return `history/${String(row).padStart(15, "0")}`;
}
