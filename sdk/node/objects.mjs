// ctx.object and ctx.objects, as millrace.d.ts has them: objects of buckets, in the handler's transaction.

const PUT = ["contentType", "metadata", "ifMatch", "ifNoneMatch"], DELETE = ["ifMatch"], LIST = ["prefix", "delimiter", "after", "limit"];

function checked(method, options, names) {
  if (typeof options !== "object" || options === null) throw new TypeError(`${method} takes an object { ${names.join(", ")} }`);
  for (const name of Reflect.ownKeys(options)) {
    if (!names.includes(name)) throw new TypeError(`${method} has only the options ${names.join(", ")}, not ${String(name)}`);
  }
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]));
}

class StoredObject {
  #content;
  constructor(info, content) { this.#content = content; Object.assign(this, info); }
  bytes() { return this.#content; }
  text() { return new TextDecoder().decode(this.#content); }
  json() { return JSON.parse(this.text()); }
}

const listed = ({ key, size_bytes: sizeBytes, etag, modified_ms: modifiedMs }) => ({ key, sizeBytes, etag, modifiedMs });
const described = ({ size_bytes: sizeBytes, etag, modified_ms: modifiedMs, content_type: contentType, metadata, version }) => ({ sizeBytes, etag, modifiedMs, contentType, metadata, version: version ?? null });

/** A description, and the content behind it. */
function parts(answer) {
  const length = new DataView(answer.buffer, answer.byteOffset).getUint32(0), text = new TextDecoder().decode(answer.subarray(4, 4 + length));
  return [described(JSON.parse(text)), answer.slice(4 + length)];
}

const refused = (error) => {
  // Why it was refused, in the words of S3.
  if (error.code === "object-refused") {
    Object.defineProperty(error, "reason", { value: error.payload?.code, enumerable: true });
    delete error.payload;
  }
  throw error;
};

/** One object. `perform` sends a request with a body, and gives what the server answers. */
export function objectOf(perform) {
  const ask = (request, body = "") => perform(request, body).catch(refused);
  return {
    get: async () => { const found = await ask({ op: "get" }); return found && new StoredObject(...parts(found)); },
    head: async () => { const found = await ask({ op: "head" }); return found && parts(found)[0]; },
    put(body, options = {}) {
      if (typeof body !== "string" && !(body instanceof Uint8Array)) throw new TypeError("put takes a string or a Uint8Array");
      return ask({ op: "put", ...checked("put", options, PUT) }, body).then(({ etag, version }) => ({ etag, version: version ?? null }));
    },
    delete: (options = {}) => ask({ op: "delete", ...checked("delete", options, DELETE) }).then(() => undefined),
  };
}

/** The objects of a bucket. */
export function objectsOf(perform) {
  const page = ({ objects, prefixes, next }) => ({ objects: objects.map(listed), prefixes, next: next ?? null });
  return { list: (options = {}) => perform({ op: "list", ...checked("list", options, LIST) }, "").catch(refused).then(page) };
}
