// A workflow with everything that a workflow has, but for servers outside.
import { Abort, service, workflow } from "millrace";

let steps = 0;

export default service({
  run: workflow(async (ctx, { shelf }: { shelf: string }) => {
    ctx.compensate("shelf", shelf, "remove", "ordered");
    const count = await ctx.call<number>("shelf", shelf, "put", { name: "ordered", price: 9 });
    const token = await ctx.step("token", () => ({ token: `for ${ctx.key}`, steps: (steps += 1) > 0 }));
    await ctx.sleep(1);
    const paid = await ctx.wait<{ amount: number }>("paid", { timeoutMs: 60_000 });
    if (paid.amount < 5) throw new Abort("too little", paid);
    return { count, token, paid, id: typeof ctx.id, random: Math.random() === Math.random() };
  }),
  child: workflow(async (ctx, input: number) => {
    await ctx.sleep(1);
    if (input < 0) throw new Abort("below zero");
    return input + 1;
  }),
  parent: workflow(async (ctx, inputs: number[]) => {
    const ids = inputs.map((input) => ctx.send("order", ctx.key, "child", input));
    const outputs = await Promise.all(ids.map((id) => ctx.result<number>(id!).catch((error) => error.message)));
    const late = await ctx.wait("never", { timeoutMs: 1 }).catch((error) => error.code);
    const tries = await ctx.step("bad", () => { throw new Abort("a step refuses"); }).catch((error) => error.message);
    return { outputs, late, tries, kinds: ids.map((id) => typeof id) };
  }),
});
