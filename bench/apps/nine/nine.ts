// A workflow of nine steps. Each step is a transaction on an entity that usually lives on another shard.
import { service, workflow } from "millrace";

const STEPS = 9;

export default service({
  run: workflow(async (ctx) => {
    let sum = 0;
    for (let step = 1; step <= STEPS; step++) {
      sum += await ctx.call<number>("nine_counter", `${ctx.key}/${step}`, "add", step);
    }
    return sum;
  }),
});
