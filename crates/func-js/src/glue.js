// The module "millrace" and the globals of a service, built once per context before any of the
// app's code runs. `natives` holds the host's functions; it is gone when the app's code starts.
//
// Order matters: first take what must not exist away, then define, then freeze. After the freeze
// no code can change a built-in object, so nothing here need fear a changed prototype later.

const natives = globalThis.__natives;
delete globalThis.__natives;

const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf, freeze } = Object;
const { ownKeys } = Reflect;

function define(name, value) {
  defineProperty(globalThis, name, { value, writable: false, enumerable: false, configurable: false });
}

// ---- No code from strings, no shared memory ----------------------------------------------------
// What runs is what was deployed. Both would also be ways around the limits or determinism.

const functionPrototypes = [function () {}, async function () {}, function* () {}, async function* () {}].map(getPrototypeOf);
for (const prototype of functionPrototypes) {
  const { name } = prototype.constructor;
  const refuse = {
    [name]: function () {
      throw new EvalError("code cannot be made from strings here; write it in a file of the app");
    },
  }[name];
  defineProperty(refuse, "prototype", { value: prototype, writable: false });
  defineProperty(prototype, "constructor", { value: refuse, writable: false, configurable: false });
}
defineProperty(globalThis, "Function", { value: Function.prototype.constructor, writable: true, configurable: true });
for (const name of ["eval", "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "performance"]) {
  delete globalThis[name];
}
delete Error.prepareStackTrace;

// ---- Time and chance come from the invocation --------------------------------------------------

const HostDate = Date;
function InvocationDate(...parts) {
  if (new.target === undefined) return new HostDate(natives.now()).toString();
  if (parts.length === 0) parts = [natives.now()];
  else if (parts.length > 1) parts = [HostDate.UTC(...parts)];
  else if (typeof parts[0] === "string") parts = [parseDate(parts[0])];
  return Reflect.construct(HostDate, parts, new.target);
}

// The machine's time zone would make the same call give another result elsewhere, or after a
// restart: local time is UTC.
function letLocalTimeBeUtc() {
  const { prototype } = HostDate;
  const set = (name, value) => defineProperty(prototype, name, { value, writable: true, configurable: true });
  for (const part of ["Date", "Day", "FullYear", "Hours", "Milliseconds", "Minutes", "Month", "Seconds"]) {
    set(`get${part}`, prototype[`getUTC${part}`]);
    if (part !== "Day") set(`set${part}`, prototype[`setUTC${part}`]);
  }
  const { getTime, toUTCString } = prototype;
  const methods = {
    getTimezoneOffset() {
      return getTime.call(this) * 0;
    },
    getYear() {
      return this.getUTCFullYear() - 1900;
    },
    setYear(year) {
      year = Math.trunc(Number(year));
      if (getTime.call(this) !== getTime.call(this)) this.setTime(0);
      return this.setUTCFullYear(year >= 0 && year <= 99 ? year + 1900 : year);
    },
    toString() {
      // "Thu, 01 Jan 1970 00:00:00 GMT"
      const text = toUTCString.call(this);
      const [, weekday, day, month, year, time] = /^(\w+), (\d+) (\w+) (-?\d+) (\S+) GMT$/.exec(text) ?? [];
      return weekday === undefined ? text : `${weekday} ${month} ${day} ${year} ${time} GMT+0000 (UTC)`;
    },
    toDateString() {
      return this.toString().replace(/ \d\d:.*$/, "");
    },
    toTimeString() {
      return this.toString().replace(/^.* (?=\d\d:)/, "");
    },
    toLocaleDateString() {
      return this.toLocaleString().replace(/, .*$/, "");
    },
    toLocaleTimeString() {
      return this.toLocaleString().replace(/^.*, /, "");
    },
    toLocaleString() {
      if (getTime.call(this) !== getTime.call(this)) return "Invalid Date";
      const two = (number) => `${number}`.padStart(2, "0");
      const hours = this.getUTCHours();
      const date = `${two(this.getUTCMonth() + 1)}/${two(this.getUTCDate())}/${`${this.getUTCFullYear()}`.padStart(4, "0")}`;
      const time = `${two(hours % 12 || 12)}:${two(this.getUTCMinutes())}:${two(this.getUTCSeconds())}`;
      return `${date}, ${time} ${hours < 12 ? "AM" : "PM"}`;
    },
  };
  for (const name of ownKeys(methods)) set(name, methods[name]);
}

// Date.parse takes a text without a time zone for local time, so it is given one.
function parseDate(text) {
  text = `${text}`;
  if (/^[-+]?\d{4,6}-\d\d-\d\d[T ][\d:.,]+$/i.test(text)) return HostDate.parse(`${text.replace(" ", "T")}Z`);
  const isDateOnly = /^[-+]?\d{4,6}(-\d\d){0,2}$/.test(text);
  const hasZone = /(?:Z|GMT|UTC?|[ECMP][SD]T|[-+]\d\d:?\d\d|[-+]\d\d)\s*(?:\([^)]*\))?\s*$/i.test(text);
  return HostDate.parse(isDateOnly || hasZone ? text : `${text} GMT`);
}
defineProperty(InvocationDate, "name", { value: "Date" });
defineProperty(InvocationDate, "length", { value: 7 });
defineProperty(InvocationDate, "prototype", { value: HostDate.prototype, writable: false });
defineProperty(HostDate.prototype, "constructor", { value: InvocationDate, writable: true, configurable: true });
defineProperty(InvocationDate, "parse", { value: (text) => parseDate(text), writable: true, configurable: true });
defineProperty(InvocationDate, "UTC", { value: HostDate.UTC, writable: true, configurable: true });
defineProperty(InvocationDate, "now", { value: natives.now, writable: true, configurable: true });
letLocalTimeBeUtc();
defineProperty(globalThis, "Date", { value: InvocationDate, writable: true, configurable: true });
defineProperty(Math, "random", { value: natives.random, writable: true, configurable: true });

// ---- Errors ------------------------------------------------------------------------------------

export class Abort extends Error {
  constructor(message, payload) {
    super(message === undefined ? "aborted" : `${message}`);
    this.payload = payload;
  }
}
defineProperty(Abort.prototype, "name", { value: "Abort", writable: true, configurable: true });

// What the host answers with; not exported, so only the host makes one. Its code stays what it is: thrown on, it is what the
// caller is answered with.
class HostError extends Error {
  constructor(code, message, reason) {
    super(message);
    defineProperty(this, "code", { value: code, enumerable: true });
    if (reason !== undefined) defineProperty(this, "reason", { value: reason, enumerable: true });
  }
}

function makeError(code, message, detail) {
  // Why an operation on objects was refused, in the words of S3.
  if (code === "object-refused" && detail !== undefined) return new HostError(code, message, JSON.parse(detail).code);
  if (code !== "aborted") return new HostError(code, message);
  return new Abort(message, detail === undefined ? undefined : JSON.parse(detail));
}

// ---- The module --------------------------------------------------------------------------------

const services = new WeakSet();
const queries = new WeakSet();
const workflows = new WeakSet();

export function service(handlers) {
  if (typeof handlers !== "object" || handlers === null) {
    throw new TypeError("service() takes an object of handlers");
  }
  for (const name of ownKeys(handlers)) {
    if (typeof name === "symbol") throw new TypeError("a handler's name is a string");
    if (name[0] === "_") continue;
    const { value } = getOwnPropertyDescriptor(handlers, name);
    checkFunction(`handler "${name}"`, value);
    if (!/^[A-Za-z][A-Za-z0-9_-]{0,63}$/.test(name)) {
      throw new TypeError(`"${name}" cannot be a handler's name: use 1 to 64 of A-Z a-z 0-9 _ -, a letter first`);
    }
  }
  services.add(handlers);
  return freeze(handlers);
}

function checkFunction(what, value) {
  if (typeof value !== "function") throw new TypeError(`${what} is not a function`);
  const isGenerator = functionPrototypes.slice(2).some((prototype) => Object.prototype.isPrototypeOf.call(prototype, value));
  if (isGenerator) throw new TypeError(`${what} is a generator, whose code nobody would run: write it without the *`);
}

export function query(handler) {
  if (typeof handler !== "function") throw new TypeError("query() takes a function");
  queries.add(handler);
  return handler;
}

export function workflow(handler) {
  if (typeof handler !== "function") throw new TypeError("workflow() takes a function");
  workflows.add(handler);
  return handler;
}

function kindOf(handler) {
  if (queries.has(handler) && workflows.has(handler)) throw new TypeError("a handler is a query or a workflow, not both");
  return queries.has(handler) ? 1 : workflows.has(handler) ? 2 : 0;
}

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

function addRoutes(found, prefix, routes, depth) {
  if (typeof routes !== "object" || routes === null) throw new TypeError("routes is not an object");
  if (depth > 8) throw new TypeError("routes nest too deeply");
  for (const name of ownKeys(routes)) {
    const value = routes[name];
    const [method, path] = splitRoute(String(name));
    const whole = joinPaths(prefix, path ?? "");
    if (method === undefined) {
      if (typeof value === "function") throw new TypeError(`route "${name}": it needs a method, such as "GET ${whole}"`);
      addRoutes(found, whole, value, depth + 1);
      continue;
    }
    if (!METHODS.includes(method)) throw new TypeError(`route "${name}": ${method} is not one of ${METHODS.join(" ")}`);
    checkFunction(`route "${name}"`, value);
    addRoute(found, method, whole === "" ? "/" : whole, value);
  }
}

// "GET /x" → ["GET", "/x"]; "/x" → [undefined, "/x"]; "GET" → ["GET", undefined].
function splitRoute(name) {
  const space = name.indexOf(" ");
  const method = name[0] === "/" ? undefined : space < 0 ? name : name.slice(0, space);
  const path = method === undefined ? name : space < 0 ? undefined : name.slice(space + 1);
  if ((method !== undefined && !/^[A-Z]+$/.test(method)) || (path !== undefined && path[0] !== "/")) {
    throw new TypeError(`route "${name}": write it as "GET /path"`);
  }
  return [method, path];
}

function joinPaths(prefix, path) {
  return (prefix === "/" ? "" : prefix) + path;
}

function addRoute(found, method, path, handler) {
  if (path !== "/") {
    for (const part of path.slice(1).split("/")) {
      if (!/^(?::[A-Za-z_][A-Za-z0-9_]*|[A-Za-z0-9._~!$&'()*+,;=@%-]+)$/.test(part)) {
        throw new TypeError(`route "${method} ${path}": "${part}" is neither a literal part nor :name`);
      }
    }
  }
  const shape = `${method} ${path.replace(/:[^/]*/g, ":")}`;
  for (const other of found) {
    if (other.shape === shape) throw new TypeError(`routes "${method} ${path}" and "${other.method} ${other.path}" match the same requests`);
  }
  const names = path.match(/:[^/]*/g) ?? [];
  if (new Set(names).size !== names.length) throw new TypeError(`route "${method} ${path}" names a part twice`);
  found.push({ shape, method, path, handler });
}

const SCHEDULE = ["cron", "key", "handler", "input"];

function addSchedule(found, definition, name, schedule) {
  const refuse = (what) => {
    throw new TypeError(`schedule "${String(name)}": ${what}`);
  };
  if (typeof name === "symbol" || !/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/.test(name)) {
    refuse("use 1 to 64 of A-Z a-z 0-9 _ - for its name, not starting with a digit or -");
  }
  if (typeof schedule !== "object" || schedule === null) refuse("it is not an object { cron, key, handler, input }");
  for (const property of ownKeys(schedule)) {
    if (!SCHEDULE.includes(property)) refuse(`it has only ${SCHEDULE.join(", ")}, not ${String(property)}`);
  }
  const { cron, key, handler, input } = schedule;
  if (typeof cron !== "string") refuse('cron must be a string, as in "0 3 * * *"');
  if (typeof handler !== "string") refuse("handler must be the name of a handler of this service");
  if (definition === undefined || handler[0] === "_" || !Object.hasOwn(definition, handler)) {
    refuse(`the service has no handler "${handler}"`);
  }
  if (queries.has(definition[handler])) refuse(`the handler "${handler}" is a query, which changes nothing`);
  if (key === undefined) refuse("it needs the key of the entity to call");
  const json = input === undefined ? "null" : JSON.stringify(input);
  if (json === undefined) refuse("its input is not JSON");
  found.push(name, cron, handler, key, json);
}

// What is read of a service module beside its default export: a module without that is refused anyway.
const EXPORTS = ["routes", "schedules"];

// Whether one text is the other but for one character more, less or other, or two that changed places.
function isOneEditAway(one, other) {
  const most = Math.min(one.length, other.length);
  let [start, end] = [0, 0];
  while (start < most && one[start] === other[start]) start += 1;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const [left, right] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  const isSwap = left.length === 2 && right.length === 2 && left[0] === right[1] && left[1] === right[0];
  return isSwap || (left.length <= 1 && right.length <= 1);
}

// A misspelt export would do nothing, and nobody would learn of it. Other names are left alone: they are for the
// modules that import them.
function refuseMisspelt(names) {
  for (const name of names) {
    if (typeof name !== "string" || EXPORTS.includes(name)) continue;
    const meant = EXPORTS.find((known) => isOneEditAway(name.toLowerCase(), known));
    if (meant === undefined || names.includes(meant)) continue;
    throw new TypeError(`the service exports "${name}", which means nothing: did you mean "${meant}"?`);
  }
}

// What a service module exports, flat: [name, kind, function, …], [method, path, function, …] and
// [name, cron, handler, key, JSON, …]. With the module itself, its names are looked at too.
function describe(definition, routes, schedules, module) {
  if (module !== undefined) refuseMisspelt(ownKeys(module));
  const handlers = [];
  if (definition !== undefined) {
    if (!services.has(definition)) throw new TypeError("the default export must be service({ … })");
    for (const name of ownKeys(definition)) {
      if (name[0] !== "_") handlers.push(name, kindOf(definition[name]), definition[name]);
    }
  }
  const found = [];
  if (routes !== undefined) addRoutes(found, "", routes, 0);
  if (definition === undefined && routes === undefined) {
    throw new TypeError('a service exports "default service({ … })", "routes", or both; a file to import only starts with _ or lies in a folder');
  }
  const times = [];
  if (schedules !== undefined) {
    if (typeof schedules !== "object" || schedules === null) throw new TypeError("schedules is not an object");
    for (const name of ownKeys(schedules)) addSchedule(times, definition, name, schedules[name]);
  }
  return [handlers, found.flatMap(({ method, path, handler }) => [method, path, handler]), times];
}

// ---- Workflows and outside calls ---------------------------------------------------------------

// A promise for the end of a step's code.
async function runStep(code) {
  return await code();
}

class ResponseHeaders {
  #values = new Map();
  // Names and values in turn; what came several times is joined, as HTTP allows.
  constructor(pairs) {
    for (let index = 0; index < pairs.length; index += 2) {
      const [name, value] = [pairs[index], pairs[index + 1]];
      const before = this.#values.get(name);
      this.#values.set(name, before === undefined ? value : `${before}, ${value}`);
    }
    for (const [name, value] of this.#values) {
      // A server that sends a header "get" must not take the method's place.
      if (name !== "get") defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
    }
  }
  get(name) {
    return this.#values.get(`${name}`.toLowerCase()) ?? null;
  }
}

class FetchResponse {
  #bytes;
  constructor(status, pairs, bytes) {
    this.#bytes = bytes;
    this.status = status;
    this.ok = status >= 200 && status < 300;
    this.headers = new ResponseHeaders(pairs);
  }
  bytes() {
    return this.#bytes;
  }
  text() {
    const text = natives.decodeUtf8(this.#bytes, false);
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
  json() {
    try {
      return JSON.parse(this.text());
    } catch (error) {
      throw new SyntaxError(`the response (status ${this.status}) is not JSON: ${error.message}`);
    }
  }
}

// ---- Records -----------------------------------------------------------------------------------

class RecordRef {
  #ctx;
  #type;
  #id;
  constructor(ctx, type, id) {
    this.#ctx = ctx;
    this.#type = type;
    this.#id = id;
  }
  get() {
    return natives.recordGet(this.#ctx, this.#type, this.#id);
  }
  select(path, parameters) {
    return natives.recordSelect(this.#ctx, this.#type, this.#id, path, parameters);
  }
  put(value) {
    return natives.recordPut(this.#ctx, this.#type, this.#id, value);
  }
  update(path, value, parameters) {
    return natives.recordUpdate(this.#ctx, this.#type, this.#id, path, value, parameters);
  }
  patch(operations, parameters) {
    return natives.recordPatch(this.#ctx, this.#type, this.#id, operations, parameters);
  }
  delete() {
    return natives.recordDelete(this.#ctx, this.#type, this.#id);
  }
}

const FIND = ["where", "parameters", "order", "prefix", "cursor", "limit"];

class RecordsRef {
  #ctx;
  #type;
  constructor(ctx, type) {
    this.#ctx = ctx;
    this.#type = type;
  }
  find(options = {}) {
    if (typeof options !== "object" || options === null) throw new TypeError(`find takes an object { ${FIND.join(", ")} }`);
    for (const name of ownKeys(options)) {
      if (!FIND.includes(name)) throw new TypeError(`find has only the options ${FIND.join(", ")}, not ${String(name)}`);
    }
    return natives.recordsFind(this.#ctx, this.#type, ...FIND.map((name) => options[name]));
  }
  getMany(ids) {
    return natives.recordsGetMany(this.#ctx, this.#type, ids);
  }
}

// ---- Objects -----------------------------------------------------------------------------------

function checkOptions(method, options, names) {
  if (typeof options !== "object" || options === null) throw new TypeError(`${method} takes an object { ${names.join(", ")} }`);
  for (const name of ownKeys(options)) {
    if (!names.includes(name)) throw new TypeError(`${method} has only the options ${names.join(", ")}, not ${String(name)}`);
  }
  return names.map((name) => options[name]);
}

class ObjectRef {
  #ctx;
  #bucket;
  #key;
  constructor(ctx, bucket, key) {
    this.#ctx = ctx;
    this.#bucket = bucket;
    this.#key = key;
  }
  get() {
    return natives.objectGet(this.#ctx, this.#bucket, this.#key);
  }
  head() {
    return natives.objectHead(this.#ctx, this.#bucket, this.#key);
  }
  put(body, options = {}) {
    const given = checkOptions("put", options, ["contentType", "metadata", "ifMatch", "ifNoneMatch"]);
    return natives.objectPut(this.#ctx, this.#bucket, this.#key, body, ...given);
  }
  delete(options = {}) {
    return natives.objectDelete(this.#ctx, this.#bucket, this.#key, ...checkOptions("delete", options, ["ifMatch"]));
  }
}

class ObjectsRef {
  #ctx;
  #bucket;
  constructor(ctx, bucket) {
    this.#ctx = ctx;
    this.#bucket = bucket;
  }
  list(options = {}) {
    const given = checkOptions("list", options, ["prefix", "delimiter", "after", "limit"]);
    return natives.objectsList(this.#ctx, this.#bucket, ...given);
  }
}

class StoredObject {
  #bytes;
  constructor(info, bytes) {
    this.#bytes = bytes;
    for (const name of ownKeys(info)) this[name] = info[name];
  }
  bytes() {
    return this.#bytes;
  }
  text() {
    return natives.decodeUtf8(this.#bytes, false);
  }
  json() {
    return JSON.parse(this.text());
  }
}

// ---- Logging -----------------------------------------------------------------------------------

function show(value) {
  if (typeof value === "string") return value;
  try {
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    const json = JSON.stringify(value);
    return json === undefined ? String(value) : json;
  } catch {
    return "[a value that cannot be shown]";
  }
}

function format(values) {
  return values.map(show).join(" ");
}

function logger(level) {
  return (...values) => natives.log(level, format(values));
}

define("console", freeze({
  debug: logger(0),
  log: logger(1),
  info: logger(1),
  warn: logger(2),
  error: logger(3),
}));

// ---- Text, bytes, hashes -----------------------------------------------------------------------

class TextEncoder {
  get encoding() {
    return "utf-8";
  }
  encode(text = "") {
    return natives.encodeUtf8(`${text}`);
  }
}

class TextDecoder {
  #fatal;
  #ignoreBom;
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(`${label}`.trim())) throw new RangeError(`the encoding "${label}" is not supported`);
    this.#fatal = !!fatal;
    this.#ignoreBom = !!ignoreBOM;
  }
  get encoding() {
    return "utf-8";
  }
  get fatal() {
    return this.#fatal;
  }
  get ignoreBOM() {
    return this.#ignoreBom;
  }
  decode(bytes = new Uint8Array(0)) {
    const text = natives.decodeUtf8(bytes, this.#fatal);
    return !this.#ignoreBom && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
}

define("TextEncoder", TextEncoder);
define("TextDecoder", TextDecoder);
define("base64", freeze({
  encode: natives.encodeBase64,
  decode: natives.decodeBase64,
}));
define("crypto", freeze({
  randomUUID: natives.uuid,
  getRandomValues(array) {
    natives.fillRandom(array);
    return array;
  },
  sha1: natives.sha1,
  sha256: natives.sha256,
  hmacSha256: natives.hmacSha256,
  timingSafeEqual: natives.equal,
  argon2id: freeze({
    hash: async (password) => await natives.argon2idHash(password),
    verify: async (password, hash) => await natives.argon2idVerify(password, hash),
  }),
}));
define("queueMicrotask", (task) => {
  if (typeof task !== "function") throw new TypeError("queueMicrotask takes a function");
  Promise.resolve().then(() => task());
});

class URLSearchParams {
  #pairs = [];
  constructor(init = "") {
    if (typeof init === "object" && init !== null) {
      const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
      for (const [name, value] of pairs) this.append(name, value);
    } else {
      this.#pairs = natives.parseQuery(`${init}`.replace(/^\?/, ""));
    }
  }
  get size() {
    return this.#pairs.length;
  }
  get(name) {
    name = `${name}`;
    for (const pair of this.#pairs) if (pair[0] === name) return pair[1];
    return null;
  }
  getAll(name) {
    name = `${name}`;
    return this.#pairs.filter((pair) => pair[0] === name).map((pair) => pair[1]);
  }
  has(name) {
    return this.get(name) !== null;
  }
  append(name, value) {
    this.#pairs.push([`${name}`, `${value}`]);
  }
  set(name, value) {
    name = `${name}`;
    const at = this.#pairs.findIndex((pair) => pair[0] === name);
    this.delete(name);
    this.#pairs.splice(at < 0 ? this.#pairs.length : at, 0, [name, `${value}`]);
  }
  delete(name) {
    name = `${name}`;
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== name);
  }
  forEach(visit, self) {
    for (const [name, value] of this.#pairs) visit.call(self, value, name, this);
  }
  *entries() {
    for (const [name, value] of this.#pairs) yield [name, value];
  }
  *keys() {
    for (const [name] of this.#pairs) yield name;
  }
  *values() {
    for (const [, value] of this.#pairs) yield value;
  }
  [Symbol.iterator]() {
    return this.entries();
  }
  toString() {
    const encode = (text) =>
      encodeURIComponent(text.toWellFormed())
        .replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)
        .replaceAll("%20", "+");
    return this.#pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
  }
}
define("URLSearchParams", URLSearchParams);

const TypedArray = getPrototypeOf(Uint8Array);

function clone(value, seen) {
  if (typeof value === "symbol" || typeof value === "function") throw new TypeError("a function or symbol cannot be cloned");
  if (typeof value !== "object" || value === null) return value;
  if (seen.has(value)) return seen.get(value);
  const keep = (copy) => (seen.set(value, copy), copy);
  if (Array.isArray(value)) {
    const copy = keep(new Array(value.length));
    for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  }
  if (value instanceof HostDate) return keep(new HostDate(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (value instanceof TypedArray) return keep(value.slice());
  if (value instanceof DataView) return keep(new DataView(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength)));
  if (value instanceof Map) {
    const copy = keep(new Map());
    for (const [key, item] of [...value]) copy.set(clone(key, seen), clone(item, seen));
    return copy;
  }
  if (value instanceof Set) {
    const copy = keep(new Set());
    for (const item of [...value]) copy.add(clone(item, seen));
    return copy;
  }
  if (value instanceof Error) {
    const copy = keep(new Error(value.message));
    if (value.name !== "Error") copy.name = value.name;
    return copy;
  }
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) {
    throw new TypeError("a promise or weak collection cannot be cloned");
  }
  const copy = keep({});
  for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
  return copy;
}
define("structuredClone", (value) => clone(value, new Map()));
