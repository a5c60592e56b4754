// The check handlers of docs/internals/worker-protocol.md, which `millrace worker-check` drives: node check.mjs [PORT [stream]]
import { Abort, query, serve, service, workflow } from "./millrace.mjs";
import { serveStreams } from "./stream.mjs";

// How often something ran in this process: what a handler must not depend on, and some of these do.
const runs = new Map();
const count = (what) => runs.set(what, (runs.get(what) ?? 0) + 1).get(what);
const known = ({ code, name, message }) => ({ code: name === "Abort" ? "aborted" : code, message });

const handlers = service({
  echo: (ctx, value) => value,
  add(ctx, number) {
    const sum = (ctx.get("count") ?? 0) + number;
    ctx.set("count", sum);
    return sum;
  },
  show: query((ctx) => ctx.get("count") ?? 0),
  put: (ctx, [name, value]) => ctx.set(name, value),
  put_raw: (ctx, name) => ctx.set(name, new Uint8Array([0, 0xff])),
  remove: (ctx, name) => void ctx.delete(name),
  read: query((ctx, name) => {
    const value = ctx.get(name);
    return value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value;
  }),
  names: query((ctx, { prefix, after, limit }) => ctx.fields({ prefix, after: after ?? undefined, limit })),
  write_then_read(ctx) {
    ctx.set("count", 7);
    return [ctx.get("count"), ctx.fields({ prefix: "count" })];
  },
  query_that_writes: query((ctx) => ctx.set("count", 1)),
  call(ctx, target) {
    ctx.set("count", (ctx.get("count") ?? 0) + 1);
    return ctx.call(...target);
  },
  both: (ctx, keys) => Promise.all(keys.map((key) => ctx.call("check", key, "add", 1))),
  caught: (ctx, target) => ctx.call(...target).catch(known),
  async call_then_show(ctx, target) {
    const before = ctx.get("count") ?? 0;
    await ctx.call(...target);
    return [before, ctx.get("count") ?? 0];
  },
  send(ctx, [service, key, handler, input, delay_ms]) {
    ctx.send(service, key, handler, input, { delay_ms });
  },
  send_id: (ctx, target) => ctx.send(...target),
  send_as: (ctx, [service, key, handler, input, id]) => ctx.send(service, key, handler, input, { id }),
  signal: (ctx, signal) => void ctx.signal(...signal),
  abort(ctx, [message, payload]) {
    throw new Abort(message, payload ?? undefined);
  },
  fail(ctx, message) {
    throw new Error(message);
  },
  draws: (ctx) => [ctx.now(), ctx.random(), ctx.random(), ctx.uuid()],
  log: (ctx, line) => ctx.log(line),
  long: (ctx, length) => "x".repeat(length),
  record: (ctx, [type, id]) => ctx.record(type, id).get(),
  async object_get(ctx, place) {
    const stored = await ctx.object(...place).get();
    return stored && [stored.text(), stored.contentType, stored.sizeBytes];
  },
  async object_head(ctx, place) {
    const info = await ctx.object(...place).head();
    return info && [info.etag, info.metadata];
  },
  async object_put(ctx, [bucket, key, text]) {
    ctx.set("count", (ctx.get("count") ?? 0) + 1);
    return (await ctx.object(bucket, key).put(text, { contentType: "text/html", ifNoneMatch: "*" })).etag;
  },
  object_delete: (ctx, place) => ctx.object(...place).delete(),
  async objects(ctx, bucket) {
    const { objects, next } = await ctx.objects(bucket).list({ prefix: "a", limit: 2 });
    return [objects.map(({ key }) => key), next];
  },
  unsteady: (ctx, target) => ctx.call(...target, count("unsteady")),
  async fickle(ctx, target) {
    if (count(`fickle ${ctx.key}`) > 1) return null;
    ctx.log("this comes once");
    return ctx.call(...target, 1);
  },
  flow_id: workflow((ctx) => ctx.id),
  flow_step: workflow((ctx) => ctx.step("one", async () => ({ runs: count("step") }))),
  flow_step_fails: workflow((ctx, message) => {
    const bad = async () => { throw new Error(message); };
    return ctx.step("bad", bad).catch(known);
  }),
  flow_steps: workflow(async (ctx) => {
    const first = await ctx.step("a", () => "a");
    const second = await ctx.step("b", () => "b");
    return [first, second, await ctx.call("check", "ben", "add", 1)];
  }),
  flow_sleep: workflow((ctx, delay_ms) => ctx.sleep(delay_ms)),
  flow_wait: workflow((ctx, [name, timeoutMs]) => ctx.wait(name, timeoutMs === null ? {} : { timeoutMs })),
  flow_result: workflow((ctx, [id, timeoutMs]) => ctx.result(id, timeoutMs === null ? {} : { timeoutMs })),
  flow_call: workflow(async (ctx, key) => {
    const first = await ctx.call("check", key, "add", 1);
    return [first, await ctx.call("check", key, "add", 2)];
  }),
  flow_compensate: workflow((ctx, target) => void ctx.compensate(...target)),
  flow_fetch: workflow(async (ctx, url) => {
    const response = await ctx.fetch(url);
    return [response.status, response.text()];
  }),
});

const routes = {
  "GET /hello/:name": (ctx, request) =>
    ({ name: request.params.name, query: request.query.get("q"), header: request.header("x-check") }),
  "POST /bytes": (ctx, request) => ({ status: 201, headers: { "x-check": "yes" }, body: new Uint8Array(request.body) }),
  "POST /json": (ctx, request) => request.json().value,
};

const [port = "8081", mode] = process.argv.slice(2), isPlain = mode !== "stream";
const server = (isPlain ? serve : serveStreams)({ check: { default: handlers, routes } }, { port: Number(port) });
server.on("listening", () => console.log(`worker at ${isPlain ? "http" : "h2c"}://127.0.0.1:${server.address().port}`));
