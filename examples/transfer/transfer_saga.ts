// A transfer as a saga: two transactions, one after the other, and what undoes them should the whole not
// come about. Between them the money is on neither account, and everybody can see that.
import { service, workflow } from "millrace";

type Transfer = { from: string; to: string; amount: number };

export default service({
  run: workflow(async (ctx, { from, to, amount }: Transfer) => {
    const change = { saga: ctx.id, amount };

    // Registered before the call, because a workflow that is cancelled in the middle of a call does not
    // come to the line after it. So `undo` looks whether there is something to undo.
    ctx.compensate("transfer_account", from, "undo", ctx.id);
    const left = await ctx.call<number>("transfer_account", from, "withdrawFor", change);

    // If this is refused, the workflow fails, and what was registered is called, the last one first.
    ctx.compensate("transfer_account", to, "undo", ctx.id);
    const received = await ctx.call<number>("transfer_account", to, "depositFor", change);

    ctx.send("transfer_account", from, "settle", ctx.id);
    ctx.send("transfer_account", to, "settle", ctx.id);
    return { from: left, to: received };
  }),
});
