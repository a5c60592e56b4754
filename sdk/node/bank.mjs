// A bank in a worker: node bank.mjs [PORT]
import { Abort, query, serve, service, workflow } from "./millrace.mjs";

const account = service({
  deposit(ctx, amount) {
    if (!Number.isSafeInteger(amount)) throw new Abort("amount must be a whole number");
    const balance = (ctx.get("balance") ?? 0) + amount;
    ctx.set("balance", balance);
    return balance;
  },
  async transfer(ctx, { to, amount }) {
    const balance = ctx.get("balance") ?? 0;
    if (balance < amount) throw new Abort("insufficient funds", { balance });
    ctx.set("balance", balance - amount);
    await ctx.call("account", to, "deposit", amount);
  },
  async both(ctx, keys) {
    return Promise.all(keys.map((key) => ctx.call("account", key, "deposit", 1)));
  },
  show: query((ctx) => ctx.get("balance") ?? 0),
  fields: query((ctx) => ctx.entries()),
  broken() {
    throw new TypeError("no such luck");
  },
});

const trip = service({
  book: workflow(async (ctx, guest) => {
    ctx.compensate("account", guest, "deposit", 80);
    const token = await ctx.step("token", async () => `token of ${guest}`, { retry: { attempts: 3, firstMs: 5 } });
    await ctx.sleep(1);
    await ctx.call("account", guest, "deposit", 100);
    ctx.log("booked", guest);
    return token;
  }),
});

const routes = {
  "POST /deposit/:key": (ctx, request) => ctx.call("account", request.params.key, "deposit", request.json().amount),
  "GET /text": () => ({ status: 418, body: "hi" }),
};

const server = serve({ account: { default: account, routes }, trip: { default: trip } }, { port: Number(process.argv[2] ?? 8081) });
server.on("listening", () => console.log(`worker at http://127.0.0.1:${server.address().port}`));
