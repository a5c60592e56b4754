// The surface of millrace.d.ts over the worker of millrace.mjs: contexts by kind of handler, and the globals.
import { AsyncLocalStorage } from "node:async_hooks";
import * as nodeCrypto from "node:crypto";
import { format } from "node:util";

const calls = new AsyncLocalStorage();
const CALLS = ["call", "signal", "record", "object", "objects", "now", "random", "uuid", "log"];
const READS = ["get", "fields", "entries", "set", "delete"];
const OUTSIDE = { route: ["fetch"], workflow: ["fetch", "sleep", "wait", "result", "step", "compensate"] };

/** An error with a code of docs/errors, or of this package. */
export const problem = (code, message) => Object.assign(new Error(message), { code });
export const missing = (what) => {
  throw problem("not-in-worker", `not-in-worker: ${what} is not there in a worker. Call a handler of a service inside the store for it.`);
};

/** A handler as millrace.mjs calls it, of one with the surface's context. `app` has all services by name. */
export function adapted(app, self, kind, handler) {
  return (base, input) => calls.run(base, async () => {
    const sent = [];
    const given = kind === "route" ? routeRequest(input) : input;
    const output = await handler.call(self, surface(app, base, kind, sent), given);
    // Its errors are those of the handler.
    await Promise.all(sent);
    return output;
  });
}

function surface(app, base, kind, sent) {
  const hasEntity = kind === "transaction" || kind === "query";
  const names = [...CALLS, ...(hasEntity ? READS : OUTSIDE[kind])];
  const ctx = Object.fromEntries(names.map((name) => [name, base[name]]));
  ctx.key = kind === "route" ? undefined : base.key;
  if (kind !== "route") ctx.keyBytes = base.keyBytes;
  ctx.id = kind === "workflow" ? base.id : undefined;
  ctx.send = (...message) => send(app, base, sent, message);
  ctx.call = (service, key, handler, ...rest) => {
    find(app, service, handler);
    return base.call(service, key, handler, ...rest);
  };
  ctx.records = (type) => records(base, type);
  if (ctx.fetch) ctx.fetch = async (...request) => withHeaders(await base.fetch(...request));
  return Object.freeze(ctx);
}

function find(app, service, handler) {
  const found = app[service];
  if (!found) throw problem("unknown-service", `the app has no service ${service}`);
  if (!Object.hasOwn(found.default ?? {}, handler) || handler.startsWith("_")) {
    throw problem("unknown-handler", `the service ${service} has no handler ${handler}`);
  }
  return found.default[handler];
}

// The id is needed at once, and the server would give one later. So the worker draws one, from the call's seed.
function send(app, base, sent, [service, key, handler, input, options = {}]) {
  const isWorkflow = find(app, service, handler).millraceKind === "workflow";
  const id = options.id ?? (isWorkflow ? base.uuid() : undefined);
  const answer = base.send(service, key, handler, input, { ...options, ...(id === undefined ? {} : { id }) });
  // Awaited at the handler's end. Until then a refusal is not one that nobody handles.
  answer.catch(() => {});
  sent.push(answer);
  return isWorkflow ? id : undefined;
}

function records(base, type) {
  const ask = async (request) => (await base.ask(type, "", request)).body;
  return {
    find: (options) => ask({ op: "find", ...options }),
    getMany: async (ids) => (await ask({ op: "get_many", ids: ids.map((id) => Buffer.from(id).toString()) })).records,
  };
}

function withHeaders(reply) {
  const headers = {};
  for (const [name, value] of reply.headers ?? []) {
    const key = name.toLowerCase();
    headers[key] = key in headers ? `${headers[key]}, ${value}` : value;
  }
  Object.defineProperty(headers, "get", { value: (name) => headers[String(name).toLowerCase()] ?? null });
  return { ...reply, headers };
}

function routeRequest(request) {
  return { ...request, body: new Uint8Array(request.body) };
}

// ---- Globals -------------------------------------------------------------------------------------

const asBytes = (data) => (typeof data === "string" ? Buffer.from(data) : data instanceof ArrayBuffer ? Buffer.from(data) : Buffer.from(data.buffer, data.byteOffset, data.byteLength));
const digest = (hash, encoding) => (encoding === undefined ? new Uint8Array(hash.digest()) : hash.digest(encoding));

const base64 = Object.freeze({
  encode: (data, alphabet = "base64") => asBytes(data).toString(alphabet),
  decode(text) {
    if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(text) || text.replace(/=+$/, "").length % 4 === 1) throw new TypeError("the text is not base64");
    return new Uint8Array(Buffer.from(text, "base64"));
  },
});

function cryptoOf(real) {
  return Object.freeze({
    randomUUID: () => calls.getStore()?.uuid() ?? real.randomUUID(),
    getRandomValues(array) {
      const ctx = calls.getStore();
      if (!ctx) return real.getRandomValues(array);
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      if (bytes.length > 65_536) throw new RangeError("getRandomValues gives at most 65,536 bytes");
      bytes.forEach((_, at) => (bytes[at] = Math.floor(ctx.random() * 256)));
      return array;
    },
    sha1: (data, encoding) => digest(nodeCrypto.createHash("sha1").update(asBytes(data)), encoding),
    sha256: (data, encoding) => digest(nodeCrypto.createHash("sha256").update(asBytes(data)), encoding),
    hmacSha256: (key, data, encoding) => digest(nodeCrypto.createHmac("sha256", asBytes(key)).update(asBytes(data)), encoding),
    timingSafeEqual(one, other) {
      const [a, b] = [asBytes(one), asBytes(other)];
      return a.length === b.length && nodeCrypto.timingSafeEqual(a, b);
    },
    argon2id: Object.freeze({ hash: async () => missing("crypto.argon2id"), verify: async () => missing("crypto.argon2id") }),
    // What Node.js itself, and packages, expect.
    subtle: real.subtle,
  });
}

/** Gives this process the globals of millrace.d.ts. Within a call, time and randomness are the call's own. */
export function installGlobals() {
  const define = (target, name, value) => Object.defineProperty(target, name, { value, configurable: true, writable: true });
  const RealDate = Date, random = Math.random;
  const now = () => calls.getStore()?.now() ?? RealDate.now();
  // A function and not a class: Date() without `new` gives a text.
  function CallDate(...parts) {
    if (!new.target) return new RealDate(now()).toString();
    return Reflect.construct(RealDate, parts.length ? parts : [now()], new.target);
  }
  Object.setPrototypeOf(CallDate, RealDate);
  CallDate.prototype = RealDate.prototype;
  CallDate.now = now;
  define(globalThis, "Date", CallDate);
  define(Math, "random", () => calls.getStore()?.random() ?? random());
  define(globalThis, "base64", base64);
  define(globalThis, "crypto", cryptoOf(globalThis.crypto));
  for (const level of ["debug", "log", "info", "warn", "error"]) {
    const print = console[level].bind(console);
    define(console, level, (...values) => {
      const ctx = calls.getStore();
      if (ctx) ctx.log(format(...values));
      else print(...values);
    });
  }
}
