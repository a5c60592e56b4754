// Transfers between ten accounts, as in examples/transfer. The request gives the other account as a distance. So a load
// generator that draws independent numbers never asks for a transfer to the same account.
import { Abort, type Routes } from "millrace";

const ACCOUNTS = 10;

export const routes: Routes = {
  async "POST /open"(ctx, request) {
    const { account, balance } = request.json();
    return { balance: await ctx.call("hot_account", account, "open", balance) };
  },
  async "POST /transfer"(ctx, request) {
    const { from, distance, amount } = request.json();
    const to = (from + distance) % ACCOUNTS;
    if (to === from) throw new Abort("from and to must be two accounts");
    const [left, received] = await Promise.all([
      ctx.call("hot_account", `account${from}`, "withdraw", amount),
      ctx.call("hot_account", `account${to}`, "deposit", amount),
    ]);
    return { from: left, to: received };
  },
  async "GET /total"(ctx) {
    const keys = Array.from({ length: ACCOUNTS }, (_, number) => `account${number}`);
    const balances = await Promise.all(keys.map((key) => ctx.call<number>("hot_account", key, "balance")));
    return { total: balances.reduce((sum, balance) => sum + balance, 0) };
  },
};
