// For the tests of streams: handlers that read what they were not given, take long, and note their runs outside.
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { Abort, query, service } from "millrace";

const RUNS = process.env.MILLRACE_TEST_RUNS;
const ran = (name) => appendFileSync(RUNS, `${name}\n`);

function holdUp(ms) {
  const end = performance.now() + (existsSync(`${RUNS}.blocks`) ? ms : 0);
  while (performance.now() < end);
}

export default service({
  deposit(ctx, amount) {
    const balance = (ctx.get("balance") ?? 0) + amount;
    ctx.set("balance", balance);
    return balance;
  },
  async transfer(ctx, { to, amount }) {
    ran("transfer");
    const balance = ctx.get("balance") ?? 0;
    if (balance < amount) throw new Abort("insufficient funds");
    ctx.set("balance", balance - amount);
    await ctx.call("account", to, "deposit", amount);
    return ctx.get("balance");
  },
  show: query((ctx) => ctx.get("balance") ?? 0),
  write(ctx, count) {
    for (let number = 0; number < count; number += 1) ctx.set(`n${number}`, "x".repeat(10_000));
  },
  // More than comes with START, so all fields are asked for.
  read(ctx) {
    ran("read");
    return ctx.fields({ prefix: "n" }).length;
  },
  long: query((ctx, length) => "x".repeat(length)),
  // Their results are on their way together, in many parts.
  async longs(ctx, { keys, length }) {
    ran("longs");
    const texts = await Promise.all(keys.map((key) => ctx.call("account", key, "long", length)));
    return texts.map((text) => text.length);
  },
  async slow(ctx, { seconds, then }) {
    ran("slow");
    ctx.set("balance", (ctx.get("balance") ?? 0) + then);
    await delay(seconds * 1000);
    return ctx.get("balance");
  },
  // Errors that no frame holds as they are.
  fails(ctx, how) {
    if (how === "number") throw Object.assign(new Error("not found"), { code: 404 });
    const cycle = {};
    cycle.cycle = cycle;
    if (how === "cycle") throw new Abort("a cycle", cycle);
    throw new Error("x".repeat(9_000_000));
  },
  async late(ctx) {
    const both = [ctx.call("account", "b", "show"), ctx.call("account", "c", "show")];
    for (const one of both) await one;
  },
  // Holds the event loop up, where nothing can be sent from.
  async blocks(ctx, { after, seconds }) {
    ran("blocks");
    await delay(after * 1000);
    holdUp(seconds * 1000);
  },
});
