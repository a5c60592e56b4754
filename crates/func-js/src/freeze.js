// The end of `glue.js`.

// ---- The freeze --------------------------------------------------------------------------------
// Built-in constructors, prototypes and namespaces become unchangeable: a call that pollutes a
// prototype fails there and then instead of changing what later calls see. Frozen prototypes would
// also forbid `error.name = …` and `object.toString = …` on *other* objects (an assignment does
// not shadow an inherited read-only property), so the properties that programs do shadow become
// accessors whose setter defines the property on the object assigned to.

function letShadow(prototype, names) {
  for (const name of names) {
    const descriptor = getOwnPropertyDescriptor(prototype, name);
    if (descriptor === undefined || !descriptor.configurable || !("value" in descriptor)) continue;
    const { value } = descriptor;
    defineProperty(prototype, name, {
      get: () => value,
      set(next) {
        if (this === prototype) throw new TypeError(`built-in objects cannot be changed: ${String(name)}`);
        defineProperty(this, name, { value: next, writable: true, enumerable: true, configurable: true });
      },
      enumerable: false,
      configurable: false,
    });
  }
}

const errors = [Error, AggregateError, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, Abort, HostError];
letShadow(Object.prototype, ownKeys(Object.prototype));
for (const error of errors) letShadow(error.prototype, ["constructor", "message", "name", "toString"]);
for (const prototype of functionPrototypes) letShadow(prototype, ["toString", "bind", "call", "apply"]);
for (const constructor of [Array, Date, Map, Set, Promise, RegExp, Iterator]) {
  letShadow(constructor.prototype, ["toString", "toJSON", "constructor"].filter((name) => constructor !== Promise || name !== "constructor"));
}

function freezeWithPrototype(value) {
  if ((typeof value !== "object" && typeof value !== "function") || value === null || value === globalThis) return;
  freeze(value);
  if (typeof value === "function" && typeof value.prototype === "object" && value.prototype !== null) freeze(value.prototype);
}

for (const name of ownKeys(globalThis)) {
  const descriptor = getOwnPropertyDescriptor(globalThis, name);
  freezeWithPrototype(descriptor.value);
  if (descriptor.configurable && "value" in descriptor && name !== "globalThis") {
    defineProperty(globalThis, name, { writable: false, configurable: false });
  }
}
for (const constructor of errors) freezeWithPrototype(constructor);
for (const prototype of functionPrototypes) {
  freeze(prototype);
  freezeWithPrototype(prototype.constructor);
  if (typeof prototype.prototype === "object") freeze(prototype.prototype);
}
freezeWithPrototype(TypedArray);
const iterators = [
  [][Symbol.iterator](),
  new Map()[Symbol.iterator](),
  new Set()[Symbol.iterator](),
  ""[Symbol.iterator](),
  "".matchAll(/x/g),
  Iterator.from({ next() {} }),
  [].values().map((x) => x),
  (function* () {})(),
  (async function* () {})(),
];
for (const iterator of iterators) {
  for (let prototype = getPrototypeOf(iterator); prototype !== null; prototype = getPrototypeOf(prototype)) freeze(prototype);
}
freeze(natives.contextPrototype);
freeze(natives.requestPrototype);
for (const exported of [service, query, workflow, ResponseHeaders, FetchResponse, RecordRef, RecordsRef, ObjectRef, ObjectsRef, StoredObject]) {
  freezeWithPrototype(exported);
}

// What the host calls.
natives.idle = () => {};
natives.makeError = makeError;
natives.describe = describe;
natives.format = format;
natives.Abort = Abort;
natives.makeResponse = (status, pairs, bytes) => new FetchResponse(status, pairs, bytes);
natives.makeRecord = (ctx, type, id) => new RecordRef(ctx, type, id);
natives.makeRecords = (ctx, type) => new RecordsRef(ctx, type);
natives.makeObject = (ctx, bucket, key) => new ObjectRef(ctx, bucket, key);
natives.makeObjects = (ctx, bucket) => new ObjectsRef(ctx, bucket);
natives.makeStored = (info, bytes) => new StoredObject(info, bytes);
natives.runStep = runStep;
natives.overlook = (promise) => void promise.catch(() => {});
natives.HostError = HostError;
natives.URLSearchParams = URLSearchParams;
