import { appendFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { service, workflow } from "millrace";

async function rest(seconds) {
  appendFileSync(process.env.MILLRACE_TEST_RUNS, "rest\n");
  await delay(seconds * 1000);
  return "rested";
}

export default service({
  pay: workflow(async (ctx, key) => {
    await ctx.call("account", key, "deposit", 1);
    return ctx.call("account", key, "deposit", 2);
  }),
  rest: workflow((ctx, seconds) => ctx.step("rest", () => rest(seconds))),
});
