// Objects with a simple sequential meaning: what clients see of them can be checked for linearizability.
import { service, query } from "millrace";

export default service({
  // A register.
  get: query((ctx) => ctx.get("value") ?? null),
  put(ctx, value: number) {
    ctx.set("value", value);
  },
  swap(ctx, { from, to }: { from: number | null; to: number }) {
    if ((ctx.get("value") ?? null) !== from) return false;
    ctx.set("value", to);
    return true;
  },

  // A counter, which is also an account.
  add(ctx, amount: number) {
    const sum = (ctx.get("value") ?? 0) + amount;
    ctx.set("value", sum);
    return sum;
  },
  sum: query((ctx) => ctx.get("value") ?? 0),

  // A set.
  insert(ctx, element: number) {
    const isNew = ctx.get(`member/${element}`) === undefined;
    ctx.set(`member/${element}`, true);
    return isNew;
  },
  remove(ctx, element: number) {
    const wasThere = ctx.get(`member/${element}`) !== undefined;
    ctx.delete(`member/${element}`);
    return wasThere;
  },
  members: query((ctx) =>
    ctx
      .entries({ prefix: "member/", limit: 1000 })
      .map(([field]) => Number(field.slice("member/".length)))
      .sort((a, b) => a - b),
  ),

  // A list.
  append(ctx, element: number) {
    const list = [...(ctx.get("list") ?? []), element];
    ctx.set("list", list);
    return list.length;
  },
  list: query((ctx) => ctx.get("list") ?? []),

  // Several keys, which live on different shards, in one transaction.
  async putAll(ctx, { keys, value }: { keys: string[]; value: number }) {
    await Promise.all(keys.map((key) => ctx.call("register", key, "put", value)));
  },
  async transfer(ctx, { to, amount }: { to: string; amount: number }) {
    ctx.set("value", (ctx.get("value") ?? 0) - amount);
    await ctx.call("register", to, "add", amount);
  },
  getAll: query((ctx, keys: string[]) => Promise.all(keys.map((key) => ctx.call("register", key, "get", null)))),
});
