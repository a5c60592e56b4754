// A worker in plain Node.js: request and reply over HTTP/1.1, as docs/internals/worker-protocol.md says. Each turn runs
// the handler from its start and feeds it the results so far, one at a time. stream.mjs has streams of HTTP/2 beside it.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { objectOf, objectsOf } from "./objects.mjs";
import { refusal, verifierOf } from "./signature.mjs";

const START = 1, RESULT = 2, FIELDS = 6, SCAN = 0x21, CALL = 0x24, SEND = 0x25, SIGNAL = 0x26, FETCH = 0x27, SLEEP = 0x28, WAIT = 0x29;
const SET = 0x22, DELETE = 0x23, STEP = 0x2a, STEP_END = 0x2b, COMPENSATE = 0x2c, RECORD = 0x2d, LOG = 0x2e, AWAIT = 0x2f;
const OUTPUT = 0x30, FAILURE = 0x31, SUSPEND = 0x32, RESUMED = 0x34, OBJECT = 0x36, VERSIONS = ["1", "2", "3", "4"];
const PAYLOAD_LIMIT = 8 * 1024 * 1024, BODY_LIMIT = 65 * 1024 * 1024, WHOLE_LIMIT = 262_144, SCAN_ROWS = 1000;
const KINDS = ["transaction", "query", "workflow", "route"], JSON_TEXT = 0, RAW = 1;

export class Abort extends Error {
  constructor(message = "", payload = undefined) { Object.assign(super(message), { name: "Abort", payload }); }
}
export class ProtocolError extends Error {}
const marked = (kind) => (handler) => Object.assign(handler, { millraceKind: kind });
export const query = marked("query"), workflow = marked("workflow");
export const service = (handlers) => Object.freeze({ ...handlers });

const u32 = (number) => { const b = Buffer.alloc(4); b.writeUInt32BE(number); return b; };
const u64 = (number) => { const b = Buffer.alloc(8); b.writeBigUInt64BE(BigInt(Math.trunc(number))); return b; };
const bytes = (data) => { const b = Buffer.from(data); return Buffer.concat([u32(b.length), b]); };
const limit = ({ timeoutMs } = {}) => (timeoutMs === undefined ? Buffer.from([0]) : Buffer.concat([Buffer.from([1]), u64(timeoutMs)]));
const packValue = ({ kind, data }) => Buffer.concat([Buffer.from([kind]), bytes(data)]);
const packError = ({ code, message, detail = "" }) => Buffer.concat([code, message, detail].map(bytes));
const retryText = (r) => (r ? JSON.stringify({ attempts: r.attempts === Infinity ? "unlimited" : r.attempts, first_ms: r.firstMs, longest_ms: r.longestMs }) : "");
const packResult = (r) => Buffer.concat(r.code ? [Buffer.from([1]), packError(r)] : [Buffer.from([0]), packValue(r)]);

export function frame(type, payload, flags = 0) {
  if (payload.length > PAYLOAD_LIMIT) throw new ProtocolError("a frame is too large");
  return Buffer.concat([u32(payload.length), Buffer.from([type, flags, 0, 0, 0, 0, 0, 0]), payload]);
}

export class Reader {
  constructor(data) { this.data = data; this.at = 0; }
  take(count) { if (this.at + count > this.data.length) throw new ProtocolError("a payload is cut off"); return this.data.subarray(this.at, (this.at += count)); }
  u8() { return this.take(1)[0]; }
  u32() { return this.take(4).readUInt32BE(); }
  u64() { return Number(this.take(8).readBigUInt64BE()); }
  bytes() { return this.take(this.u32()); }
  text() { return new TextDecoder("utf-8", { fatal: true }).decode(this.bytes()); }
  form() { if (this.data[this.at] > 1) throw new ProtocolError("a form is 0 or 1"); return this.u8(); }
  value() { return { kind: this.form(), data: this.bytes() }; }
  result() { return this.form() ? { code: this.text(), message: this.text(), detail: this.bytes() } : this.value(); }
  end() { if (this.at !== this.data.length) throw new ProtocolError("bytes are left over"); }
}

export function readFrame(reader) {
  const length = reader.u32(), [type, flags, zero1, zero2] = reader.take(4);
  if (length > PAYLOAD_LIMIT || zero1 || zero2) throw new ProtocolError("a wrong header");
  if (reader.u32() !== 0) throw new ProtocolError("a request or stream carries one attempt, whose stream is 0");
  if (flags > (type === START ? 3 : 1)) throw new ProtocolError("an unknown flag");
  return { type, flags, payload: new Reader(reader.take(length)) };
}

function decode(body) {
  const reader = new Reader(body), frames = [];
  while (reader.at < body.length) frames.push(readFrame(reader));
  return [readStart(frames[0] ?? {}), frames.slice(1).map(readInput)];
}

export function readStart({ type, flags, payload: p }) {
  if (type !== START) throw new ProtocolError("an attempt begins with START");
  const start = {
    attempt: p.take(16).toString("hex"), kind: KINDS[p.u8()], deadline: p.u32(), seen: p.u32(),
    service: p.text(), handler: p.text(), key: p.bytes(), id: p.text(), now: p.u64(), seed: p.take(16),
    input: p.bytes(), fields: new Map(), whole: (flags & 1) === 1,
  };
  if (start.kind === undefined) throw new ProtocolError("an unknown kind of handler");
  for (let left = p.u32(); left > 0; left -= 1) start.fields.set(p.bytes().toString(), p.value());
  p.end();
  return start;
}

export function readInput({ type, flags, payload: p }) {
  if (type !== RESULT && type !== FIELDS) throw new ProtocolError("RESULT or FIELDS is expected");
  const fields = () => Array.from({ length: p.u32() }, () => [p.bytes().toString(), p.form() ? p.value() : null]);
  const given = type === RESULT ? { operation: p.u32(), result: p.result() } : { fields: fields(), isRestVoid: flags === 1 };
  p.end();
  return given;
}

const rest = () => new Promise((resolve) => setImmediate(resolve)); // All microtasks have run by then.
const unheard = (promise) => (promise.catch(() => {}), promise); // A failure that nobody awaits, or somebody late, ends no process.
const parse = (data) => (data.length === 0 ? null : JSON.parse(data.toString()));
const toValue = (value) => (ArrayBuffer.isView(value) ? { kind: RAW, data: value } : { kind: JSON_TEXT, data: JSON.stringify(value ?? null) });
const given = (data, what) => { try { return parse(data); } catch (e) { throw Object.assign(new Error(`${what} is not JSON: ${e.message}`), { code: "invalid-input" }); } };
const fromValue = ({ kind, data }) => (kind === RAW ? new Uint8Array(data) : parse(data));
const CRC = Array.from({ length: 256 }, (_, n) => { for (let k = 8; k--;) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1; return n >>> 0; });
const crc32 = (data, sum) => { sum = ~sum; for (const b of data) sum = CRC[(sum ^ b) & 255] ^ (sum >>> 8); return ~sum >>> 0; };

const codeOf = (e) => (e instanceof Abort ? "aborted" : typeof e?.code === "string" && e.code.length <= 100 ? e.code : "function-failed"); // Others throw numbers.
const errorOf = (e) => ({ code: codeOf(e), message: String(e?.message ?? e).slice(0, 65536), detail: e?.payload === undefined ? "" : JSON.stringify(e.payload) });
const failure = (e) => { try { return errorOf(e); } catch (why) { return errorOf(new Error(`an error that cannot be sent: ${why.message}`)); } };
const payloadOf = ({ detail }) => (detail?.length ? parse(detail) : undefined);
const thrown = (e) => (e.code === "aborted" ? new Abort(e.message, payloadOf(e)) : Object.assign(new Error(e.message), { code: e.code, payload: payloadOf(e) }));

export class Attempt {
  constructor(start) {
    Object.assign(this, { start, frames: [], sent: 0, sum: 0, resumed: [0, 0], operations: 0, draws: 0 });
    Object.assign(this, { hasFields: KINDS.indexOf(start.kind) < 2, fields: start.fields, whole: start.whole });
    // What settles each operation that is awaited; results nobody awaits yet; code of steps that runs.
    Object.assign(this, { waiting: new Map(), early: new Map(), running: new Set() });
  }
  emit(type, payload, flags = 0) {
    const data = frame(type, payload, flags);
    this.sum = crc32(data, this.sum);
    if ((this.sent += 1) <= this.start.seen) this.resumed = [this.sent, this.sum];
    else this.frames.push(data);
  }
  issue(type, ...parts) {
    this.emit([type].flat()[0], Buffer.concat([u32(this.operations + 1), ...parts]), [type].flat()[1]);
    return (this.operations += 1);
  }
  result(operation) {
    return new Promise((resolve, reject) => {
      this.waiting.set(operation, (result) => (result.code ? reject(thrown(result)) : resolve(result)));
      if (this.early.has(operation)) this.deliver(operation, this.early.get(operation));
    });
  }
  perform(type, ...parts) { return unheard(this.result(this.issue(type, ...parts)).then(fromValue).finally(() => this.load())); }
  async load() { // Handlers read without waiting, so all fields have to be here first.
    for (let after; this.hasFields && !this.whole; ) {
      const behind = after === undefined ? Buffer.from([0]) : Buffer.concat([Buffer.from([1]), bytes(after)]);
      const rows = new Reader((await this.result(this.issue(SCAN, bytes(""), behind, u32(SCAN_ROWS)))).data);
      const count = rows.u32();
      for (let left = count; left > 0; left -= 1) this.fields.set((after = rows.bytes().toString()), rows.value());
      this.whole = count < SCAN_ROWS;
    }
  }
  learn({ fields, isRestVoid }) { // A call has changed this entity.
    if (isRestVoid) { this.fields.clear(); this.whole = false; }
    for (const [name, value] of fields) value ? this.fields.set(name, value) : this.fields.delete(name);
  }
  deliver(operation, result) {
    const settle = this.waiting.get(operation) ?? ((result) => this.early.set(operation, result));
    for (const known of [this.waiting, this.early]) known.delete(operation);
    settle(result);
  }
  async rested() { do { await Promise.allSettled(this.running); await rest(); } while (this.running.size); }
  run(handler) { // What `ended` is then sends the end.
    const failed = (error) => this.emit(FAILURE, Buffer.concat([packError(failure(error)), bytes(String(error?.stack ?? "").slice(0, 65536))]), error instanceof Abort ? 1 : 0);
    const gave = (output) => { try { this.emit(OUTPUT, packValue(this.output(output))); } catch (error) { failed(error); } };
    const run = async () => (await this.load(), handler(this.context(), this.input()));
    return run().then((output) => (this.ended = () => gave(output)), (error) => (this.ended = () => failed(error)));
  }
  suspend() { this.frames.push(frame(SUSPEND, Buffer.concat([u32(this.waiting.size), ...[...this.waiting.keys()].map(u32)]))); }
  async turn(handler, inputs) {
    this.inputs = inputs;
    this.run(handler);
    await this.rested();
    for (let given; (given = inputs.shift()); await this.rested()) given.fields ? this.learn(given) : this.deliver(given.operation, given.result);
    if (this.ended && !this.waiting.size) this.ended();
    else this.suspend();
    if (this.start.seen) this.frames.unshift(frame(RESUMED, Buffer.concat(this.resumed.map(u32))));
    return Buffer.concat(this.frames);
  }
  input() {
    const input = given(this.start.input, "the input");
    if (this.start.kind !== "route") return input;
    const body = Buffer.from(input.body ?? "", "base64"), headers = Object.fromEntries(input.headers ?? []);
    return { ...input, body, headers, query: new URLSearchParams(input.query), header: (n) => headers[n.toLowerCase()] ?? null, text: () => body.toString(), json: () => given(body, "the body") };
  }
  output(output) {
    if (this.start.kind !== "route") return toValue(output);
    const names = output && typeof output === "object" ? Object.keys(output) : [];
    const reply = names.length && names.every((n) => ["status", "headers", "body"].includes(n)) ? output : { body: output };
    const form = typeof reply.body === "string" ? "text/plain; charset=utf-8" : ArrayBuffer.isView(reply.body) ? "application/octet-stream" : "application/json";
    const raw = form === "application/json" ? JSON.stringify(reply.body) : reply.body;
    const headers = Object.entries(reply.headers ?? {}).flatMap(([n, v]) => [v].flat().map((one) => [n, String(one)]));
    if (raw !== undefined && !headers.some(([n]) => n.toLowerCase() === "content-type")) headers.push(["content-type", form]);
    return toValue({ status: reply.status ?? (raw === undefined ? 204 : 200), headers, body: Buffer.from(raw ?? "").toString("base64") });
  }
  draw() { return createHash("sha256").update(this.start.seed).update(u64(this.draws++)).digest(); }
  write(name, value) {
    if (this.start.kind !== "transaction") throw new Error("only a transaction writes");
    const was = this.fields.has(name);
    this.learn({ fields: [[name, value]] });
    this.emit(value ? SET : DELETE, Buffer.concat([bytes(name), value ? packValue(value) : Buffer.alloc(0)]));
    return was;
  }
  scan({ prefix = "", after, limit = Infinity } = {}) {
    const sorted = [...this.fields].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    return sorted.filter(([n]) => n.startsWith(prefix) && (after === undefined || Buffer.compare(Buffer.from(n), Buffer.from(after)) > 0)).slice(0, limit);
  }
  async step(name, code, { retry } = {}) {
    const operation = this.issue(STEP, bytes(name), bytes(retryText(retry)));
    let result = await this.result(operation);
    if (result.kind === RAW && result.data.length === 0) {
      const at = this.inputs.findIndex((given) => given.operation === operation);
      let [noted] = at < 0 ? [] : this.inputs.splice(at, 1); // In a run over again the noted result has come along.
      if (!noted) {
        const run = (async () => code())().then(toValue, failure);
        this.running.add(run);
        result = await run;
        this.running.delete(run);
      }
      this.emit(STEP_END, Buffer.concat([u32(operation), packResult(noted?.result ?? result)]));
      result = noted?.result ?? (await this.result(operation));
    }
    if (result.kind === RAW) result = new Reader(result.data).result();
    if (result.code) throw thrown(result);
    return fromValue(result);
  }
  context() {
    const { start } = this, target = (s, k, h, i) => Buffer.concat([s, k, h, JSON.stringify(i ?? null)].map(bytes));
    return {
      key: start.key.toString(), keyBytes: new Uint8Array(start.key), id: start.id || undefined,
      get: (name) => { const value = this.fields.get(name); return value && fromValue(value); },
      set: (name, value) => void this.write(name, toValue(value)),
      delete: (name) => this.write(name, null),
      fields: (options) => this.scan(options).map(([name]) => name),
      entries: (options) => this.scan(options).map(([name, value]) => [name, fromValue(value)]),
      call: (s, k, h, i, { retry } = {}) => this.perform(retry ? [CALL, 1] : CALL, target(s, k, h, i), retry ? bytes(retryText(retry)) : Buffer.alloc(0)),
      send: (s, k, h, i, { delay_ms = 0, id = "" } = {}) => this.perform(id ? [SEND, 1] : SEND, target(s, k, h, i), u64(delay_ms), id ? bytes(id) : Buffer.alloc(0)),
      signal: (id, name, payload) => this.emit(SIGNAL, Buffer.concat([id, name, JSON.stringify(payload ?? null)].map(bytes))),
      compensate: (s, k, h, i) => this.emit(COMPENSATE, target(s, k, h, i)),
      sleep: (ms) => this.perform(SLEEP, u64(ms)),
      wait: (name, options) => this.perform(WAIT, bytes(name), limit(options)), result: (id, options) => this.perform(AWAIT, bytes(id), limit(options)),
      step: (name, code, options) => this.step(name, code, options), fetch: (url, options = {}) => this.fetch(url, options),
      object: (bucket, key) => objectOf(this.objects(bucket, key)), objects: (bucket) => objectsOf(this.objects(bucket, "")),
      record: (type, id) => this.record(type, id), ask: (type, id, request) => this.perform(RECORD, bytes(type), bytes(id), bytes(JSON.stringify(request))),
      now: () => start.now, random: () => Number(this.draw().readBigUInt64BE() >> 11n) / 2 ** 53,
      uuid: () => { const b = this.draw(); b[6] = (b[6] & 15) | 64; b[8] = (b[8] & 63) | 128; return b.toString("hex", 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-"); },
      log: (...values) => this.emit(LOG, Buffer.concat([Buffer.from([1]), bytes(values.join(" "))])),
    };
  }
  objects(bucket, key) {
    if (this.start.version < 4) throw new Error("ctx.object and ctx.objects need version 4 of the worker protocol, which the server does not speak");
    return (request, body) => this.perform(OBJECT, ...[bucket, key, JSON.stringify(request), body].map(bytes));
  }
  record(type, id) {
    const ask = (op, request) => this.perform(RECORD, bytes(type), bytes(id), bytes(JSON.stringify({ op, ...request })));
    const none = (error) => { if (error.code === "unknown-record") return {}; throw error; };
    return {
      get: async () => (await ask("get").catch(none)).body ?? null,
      select: async (path, parameters) => (await ask("select", { path, parameters })).body ?? [],
      put: async (value) => !!(await ask("put", { value })).created,
      update: async (path, value, parameters) => (await ask("patch", { operations: [{ op: "set", path, value }], parameters })).matched ?? 0,
      patch: async (operations, parameters) => (await ask("patch", { operations, parameters })).matched ?? 0,
      delete: async () => !!(await ask("delete")).matched,
    };
  }
  async fetch(url, { method = "GET", headers = {}, body, timeoutMs = 10_000, retries }) {
    const content = body === undefined ? "" : typeof body === "string" || ArrayBuffer.isView(body) ? body : JSON.stringify(body);
    const request = { method, url, headers: Object.entries(headers), body: Buffer.from(content).toString("base64"), timeout_ms: timeoutMs, retries };
    const reply = await this.perform(FETCH, bytes(JSON.stringify(request))), data = Buffer.from(reply.body ?? "", "base64");
    return { status: reply.status, ok: reply.status >= 200 && reply.status < 300, headers: reply.headers, text: () => data.toString(), json: () => parse(data), bytes: () => new Uint8Array(data) };
  }
}

const isHandler = ([name, handler]) => typeof handler === "function" && !name.startsWith("_");
const discovery = (services, mode) => ({
  protocol: { min: 1, max: VERSIONS.length }, mode, sdk: "millrace-node/0.1.0",
  services: Object.entries(services).map(([name, { default: handlers = {}, routes = {}, schedules = {} }]) => ({
    name, fields: [], whole_up_to_bytes: WHOLE_LIMIT,
    handlers: Object.entries(handlers).filter(isHandler).map(([name, h]) => ({ name, kind: h.millraceKind ?? "transaction" })),
    routes: Object.keys(routes).map((route) => ({ method: route.split(" ")[0], path: route.split(" ")[1] })),
    schedules: Object.entries(schedules).map(([name, schedule]) => ({ name, input: null, ...schedule })),
  })),
});

export const problem = (status, code, detail) => [status, "application/json", JSON.stringify({ code, detail })];
export function handlerOf(services, start, { headers }) {
  if (!VERSIONS.includes(headers["millrace-worker-protocol"])) throw new ProtocolError(`this worker speaks the versions 1 to ${VERSIONS.length}`);
  start.version = Number(headers["millrace-worker-protocol"]);
  if (headers["millrace-attempt"] !== start.attempt) throw new ProtocolError("the header names another attempt");
  const found = services[start.service], handler = start.kind === "route" ? found?.routes?.[start.handler] : found?.default?.[start.handler];
  const fits = handler && (start.kind === "route" || (handler.millraceKind ?? "transaction") === start.kind);
  const missing = () => { throw Object.assign(new Error(`no ${start.kind} ${start.service}/${start.handler}`), { code: "unknown-handler" }); };
  return fits ? (ctx, input) => handler.call(found.default, ctx, input) : missing;
}

async function answer(services, fits, mode, request, body) {
  const path = request.url.split("?")[0], refused = refusal(fits, request, body);
  if (refused) return problem(401, "worker-refused", refused);
  if (path.endsWith("/discovery")) return [200, "application/json", JSON.stringify(discovery(services, mode))];
  if (!path.endsWith("/invoke") || request.method !== "POST") return [404, "text/plain", "GET /discovery, POST /invoke"];
  const [start, inputs] = decode(body);
  return [200, "application/vnd.millrace.worker", await new Attempt(start).turn(handlerOf(services, start, request), inputs)];
}

export function respond(services, fits, mode, request, response) {
  const parts = [];
  let length = 0;
  request.on("data", (part) => ((length += part.length) > BODY_LIMIT ? request.destroy() : parts.push(part)));
  request.on("end", async () => {
    const [status, type, body] = await answer(services, fits, mode, request, Buffer.concat(parts)).catch((error) => problem(400, "worker-protocol", error.message));
    response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(body) }).end(body);
  });
}

/** Serves services, each a module with `default` and perhaps `routes` and `schedules`; gives the HTTP server. */
export function serve(services, { port = 8081, host = "127.0.0.1", secret, publicKey } = {}) {
  const fits = verifierOf({ secret, publicKey });
  return createServer((request, response) => respond(services, fits, "request-reply", request, response)).listen(port, host);
}
