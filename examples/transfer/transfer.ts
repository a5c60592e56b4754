// Moving money in two ways: one transaction, or a saga of two.
import { Abort, type Request, type Routes } from "millrace";

export const routes: Routes = {
  async "POST /open"(ctx, request) {
    const { id, balance } = request.json() ?? {};
    if (typeof id !== "string") throw new Abort("id must be a string");
    return { id, balance: await ctx.call("transfer_account", id, "open", balance) };
  },

  async "GET /balance"(ctx, request) {
    const balance = await ctx.call("transfer_account", request.query.get("id") ?? "", "balance");
    return balance ?? { status: 404, body: { error: "there is no such account" } };
  },

  async "POST /transaction"(ctx, request) {
    const { from, to, amount } = parties(request);
    const [left, received] = await Promise.all([
      ctx.call("transfer_account", from, "withdraw", amount),
      ctx.call("transfer_account", to, "deposit", amount),
    ]);
    return { from: left, to: received };
  },

  "POST /saga"(ctx, request) {
    const transfer = parties(request);
    const id = ctx.send("transfer_saga", transfer.from, "run", transfer);
    return { headers: { "content-type": "application/json" }, body: JSON.stringify(id) };
  },
};

function parties(request: Request): { from: string; to: string; amount: number } {
  const { from, to, amount } = request.json() ?? {};
  for (const [name, value] of Object.entries({ from, to })) {
    if (typeof value !== "string" || value === "") throw new Abort(`${name} must be a string`);
  }
  if (!Number.isSafeInteger(amount) || amount <= 0) throw new Abort("amount must be a whole number above 0");
  if (from === to) throw new Abort("from and to must be two accounts");
  return { from, to, amount };
}
