// Type declarations of the module "millrace" and of the globals that functions have.
//
// Written by `millrace types`. Functions run in no browser and in no Node: what is not declared
// here (beyond ECMAScript itself) does not exist. There are no timers, no `fetch`, no `eval`.

declare module "millrace" {
  /** What JSON can hold. `undefined` properties are left out, as `JSON.stringify` does. */
  export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

  /**
   * What a field can hold: anything JSON can, or bytes. Bytes (a typed array or an `ArrayBuffer`)
   * come back as a `Uint8Array`. Everything else is stored as JSON: a `Date` comes back as a
   * string, a `Map` as `{}`. `undefined` cannot be stored; use `ctx.delete`.
   */
  export type Storable = unknown;

  /** Which fields a scan gives, in the order of their UTF-8 bytes. */
  export interface ScanOptions {
    /** Only fields that start with this. */
    prefix?: string;
    /** Only fields after this one: the last of the page before. */
    after?: string;
    /** At most so many, and never more than 10,000. */
    limit?: number;
  }

  /** What every call can use. It belongs to one call: keeping it for another throws. */
  export interface Calls {
    /**
     * Calls a handler of an entity of this app, inside this call's transaction: what it changes
     * takes effect together with the rest, or not at all.
     *
     * An error of the callee is thrown here: an `Abort` as the same `Abort`, any other as an `Error` whose
     * `code` names it (`"unknown-handler"`, `"function-failed"`, `"cpu-limit"`, …). An unknown
     * service or handler throws at once, without waiting.
     */
    call<Output = any>(service: string, key: string | Uint8Array, handler: string, input?: unknown): Promise<Output>;

    /**
     * Sends a call that happens exactly once after this transaction took effect, and not at all
     * if it does not. Nothing comes back.
     */
    send(service: string, key: string | Uint8Array, handler: string, input?: unknown, options?: SendOptions): void;

    /** The time of the invocation in milliseconds since 1970: the same in all its calls and retries. */
    now(): number;
    /** A random number from 0 (included) to 1 (excluded), the same in a retry. */
    random(): number;
    /** A random UUID, the same in a retry. */
    uuid(): string;
    /** Writes a line to the server's log. */
    log(...values: unknown[]): void;
  }

  export interface SendOptions {
    /** How long to wait after the commit. Survives restarts. */
    delay_ms?: number;
  }

  /** What a query can do: read its entity. */
  export interface QueryContext extends Calls {
    /** The entity's key. Bytes that are not UTF-8 show as U+FFFD; see `keyBytes`. */
    readonly key: string;
    /** The entity's key as bytes. */
    readonly keyBytes: Uint8Array;
    /** A field's value; `undefined` when the field is not set. Sees this call's own writes. */
    get<Value = any>(field: string): Value | undefined;
    /** The names of the entity's fields. */
    fields(options?: ScanOptions): string[];
    /** The entity's fields with their values. */
    entries<Value = any>(options?: ScanOptions): [field: string, value: Value][];
  }

  /** What a handler can do: read and write its entity. */
  export interface Context extends QueryContext {
    /** Sets a field. Takes effect when the whole call succeeds. */
    set(field: string, value: Storable): void;
    /** Deletes a field; says whether it was set. */
    delete(field: string): boolean;
  }

  /** What a route can do. It has no entity of its own: it reaches entities with `call`. */
  export interface RouteContext extends Calls {
    readonly key: undefined;
  }

  export type Handler<Input = any, Output = any> = (ctx: Context, input: Input) => Output | Promise<Output>;
  export type QueryHandler<Input = any, Output = any> = (ctx: QueryContext, input: Input) => Output | Promise<Output>;

  const queryBrand: unique symbol;
  /** A handler made with `query`. */
  export type Query<Input = any, Output = any> = QueryHandler<Input, Output> & { readonly [queryBrand]: true };

  /**
   * Declares a service: the default export of a file at the app's top, whose name it has.
   *
   * Each property is a handler, callable as `POST /call/{service}/{key}/{name}` and with
   * `ctx.call`; its input and output are JSON. Names starting with `_` are not reachable from
   * outside. The object is frozen; `this` inside a handler is that object.
   */
  export function service<Definition>(
    handlers: Handlers<Definition> & ThisType<Definition>,
  ): Readonly<Definition>;

  /** Handlers by name, and helpers of any kind whose names start with `_`. */
  export type Handlers<Definition> = {
    [Name in keyof Definition]: Name extends `_${string}` ? Definition[Name] : Definition[Name] & Handler;
  };

  /** Marks a handler that only reads. It sees one consistent state and waits for no writer; writing in it throws. */
  export function query<Input = any, Output = any>(handler: QueryHandler<Input, Output>): Query<Input, Output>;

  /** Long-running handlers of many steps. Not supported yet: an app that uses it is refused. */
  export function workflow(handler: (...parts: never[]) => unknown): never;

  /**
   * Refuses the call and rolls back everything it did. The caller gets status 409, code `aborted`,
   * this message and, as `detail`, the payload. Thrown in a nested call, it ends the outer call
   * too, unless that catches it.
   */
  export class Abort<Payload = any> extends Error {
    constructor(message?: string, payload?: Payload);
    readonly name: "Abort";
    payload: Payload;
  }

  /** A request to a route. What it has is made when it is asked for: `header("x")` is cheaper than `headers.x`. */
  export interface Request {
    /** In upper case. */
    readonly method: string;
    /** The whole path, percent-encoded as it came. */
    readonly path: string;
    /** The query's parameters, decoded. */
    readonly query: URLSearchParams;
    /** The values of the `:name` parts of the route's path, decoded. */
    readonly params: Record<string, string>;
    /** Every header, its name in lower case. */
    readonly headers: Record<string, string>;
    /** One header's first value, `null` when it is absent. Upper and lower case do not matter. */
    header(name: string): string | null;
    /** The body's bytes. */
    readonly body: Uint8Array;
    /** The body as text. */
    text(): string;
    /** The body as JSON. Throws an error with status 400 when it is none. */
    json<Value = any>(): Value;
  }

  /** A reply with a status or headers. */
  export interface Reply {
    /** 200 to 599; 200 by default, or 204 when there is no body. */
    status?: number;
    /** Values are visible ASCII. An array gives a header several times. The server itself frames the reply. */
    headers?: Record<string, string | number | string[]>;
    /**
     * A string (`text/plain; charset=utf-8`), bytes (`application/octet-stream`) or anything else as JSON
     * (`application/json`). A `content-type` among the headers takes precedence.
     */
    body?: unknown;
  }

  /**
   * A route: a function without an entity. Everything it calls is one transaction.
   *
   * It returns a `Reply`, or just a body: an object counts as a `Reply` when all its properties are among
   * `status`, `headers` and `body`. `undefined` is an empty 204.
   */
  export type Route = (ctx: RouteContext, request: Request) => unknown;

  /**
   * The export `routes` of a service, mounted at `/{service}/…`:
   *
   * ```ts
   * export const routes: Routes = {
   *   "GET /login": async (ctx, request) => ({ status: 401 }),
   *   "/users/:id": { GET: getUser, DELETE: deleteUser },
   * };
   * ```
   */
  export interface Routes {
    [route: string]: Route | Routes;
  }
}

/** Base64 of RFC 4648. */
declare const base64: {
  /** Text of bytes, or of a string's UTF-8. `"base64"` is padded, `"base64url"` is not. */
  encode(data: string | ArrayBuffer | ArrayBufferView, alphabet?: "base64" | "base64url"): string;
  /** The bytes of a text in either alphabet, padded or not. Throws a `TypeError` for any other. */
  decode(text: string): Uint8Array;
};

/** Bytes as a string of characters from U+0000 to U+00FF, from base64. */
declare function atob(text: string): string;
/** Base64 of a string of characters from U+0000 to U+00FF. */
declare function btoa(text: string): string;

declare class TextEncoder {
  readonly encoding: "utf-8";
  encode(text?: string): Uint8Array;
}

declare class TextDecoder {
  constructor(label?: "utf-8" | "utf8", options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: "utf-8";
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(bytes?: ArrayBuffer | ArrayBufferView): string;
}

/** How a digest is given: as bytes when left out. */
type DigestEncoding = "hex" | "base64" | "base64url";

/** Hash functions take strings (as UTF-8) or bytes. */
type HashInput = string | ArrayBuffer | ArrayBufferView;

declare const crypto: {
  /** A random UUID from the invocation's seed. */
  randomUUID(): string;
  /** Fills a typed array from the invocation's seed, at most 65,536 bytes. */
  getRandomValues<Values extends ArrayBufferView>(values: Values): Values;
  /** SHA-1. For compatibility with what others stored, not for new secrets. */
  sha1(data: HashInput): Uint8Array;
  sha1(data: HashInput, encoding: DigestEncoding): string;
  sha256(data: HashInput): Uint8Array;
  sha256(data: HashInput, encoding: DigestEncoding): string;
  hmacSha256(key: HashInput, data: HashInput): Uint8Array;
  hmacSha256(key: HashInput, data: HashInput, encoding: DigestEncoding): string;
  /** Whether two secrets are equal, in a time that does not tell where they differ. */
  timingSafeEqual(a: HashInput, b: HashInput): boolean;
  /** Password hashing. It runs beside the server's cores and takes tens of milliseconds. */
  argon2id: {
    /** A PHC string to store: `$argon2id$v=19$m=19456,t=2,p=1$…`. */
    hash(password: HashInput): Promise<string>;
    /** Whether the password is the one that was hashed. */
    verify(password: HashInput, hash: string): Promise<boolean>;
  };
};

/** Lines in the server's log. */
declare const console: {
  debug(...values: unknown[]): void;
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
};

/** A deep copy of plain objects, arrays, dates, maps, sets, regular expressions, errors and bytes. */
declare function structuredClone<Value>(value: Value): Value;

/** Runs a task after what runs now. */
declare function queueMicrotask(task: () => void): void;

declare class URLSearchParams {
  constructor(init?: string | Iterable<[string, string]> | Record<string, string>);
  readonly size: number;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  append(name: string, value: string): void;
  delete(name: string): void;
  forEach(visit: (value: string, name: string, parameters: URLSearchParams) => void, self?: unknown): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
  toString(): string;
}
