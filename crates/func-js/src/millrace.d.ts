// Type declarations of the module "millrace" and of the globals that functions have.
//
// Written by `millrace types`. Functions run in no browser and in no Node: what is not declared
// here (beyond ECMAScript itself) does not exist. There are no timers, no global `fetch`, no `eval`.
// Local time is UTC.

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
    /** At most so many. One answer has 10,000 at most: who asks for all of more gets an error. */
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
     * service or handler throws at once, without waiting. In a workflow, a call that fails otherwise than by an
     * `Abort` is made again, several times with growing pauses; then the workflow is paused.
     */
    call<Output = any>(service: string, key: string | Uint8Array, handler: string, input?: unknown): Promise<Output>;

    /**
     * Sends a call that happens exactly once after this transaction took effect, and not at all
     * if it does not. No result comes back; what does is the invocation's id where the handler is a
     * workflow, for `ctx.signal` and `GET /invocations/{id}`, and `undefined` where it is not.
     */
    send(
      service: string,
      key: string | Uint8Array,
      handler: string,
      input?: unknown,
      options?: SendOptions,
    ): string | undefined;

    /**
     * Sends a signal to a running workflow if this transaction takes effect. The workflow gets it
     * with `ctx.wait(name)`, now or later. The name has at most 256 bytes; the payload is JSON.
     */
    signal(invocation: string, name: string, payload?: unknown): void;

    /**
     * A typed record, whether or not there is one of that id. Its methods join this call's
     * transaction, as `call` does; in a workflow each is a transaction of its own. A query can
     * read only. The app's `millrace.toml` says which types it may use:
     *
     * ```toml
     * [records]
     * types = ["personinfo"]   # or ["*"]
     * ```
     *
     * An error is thrown with a `code`: `"unknown-type"` and `"forbidden"` at once, without waiting, others when
     * awaited (`"unknown-record"`, `"wrong-type"`, `"invalid-path"`, `"no-match"`, …).
     */
    record<Value = any>(type: string, id: string | Uint8Array): RecordRef<Value>;

    /** The records of a type. */
    records<Value = any>(type: string): RecordsRef<Value>;

    /**
     * An object of a bucket, whether or not there is one of that key. Its methods join this call's transaction, as
     * `call` does; in a workflow each is a transaction of its own. A query can read only. The bucket belongs to this
     * app (`millrace s3 bucket app BUCKET APP`), or its policy lets the app in.
     *
     * An error has the `code` `"object-refused"` and a `reason` in the words of S3: `"NoSuchBucket"`,
     * `"AccessDenied"`, `"PreconditionFailed"`, …
     */
    object(bucket: string, key: string): ObjectRef;

    /** The objects of a bucket. */
    objects(bucket: string): ObjectsRef;

    /** The time of the invocation in milliseconds since 1970: the same in all its calls and retries. */
    now(): number;
    /** A random number from 0 (included) to 1 (excluded), the same in a retry. */
    random(): number;
    /** A random UUID, the same in a retry. */
    uuid(): string;
    /** Writes a line to the server's log. */
    log(...values: unknown[]): void;
  }

  /**
   * One record. Values are JSON as the records' own API has it: bytes as base64, decimals, dates and
   * UUIDs as text. Paths are those of that API; `parameters` are the values of `$name` in them.
   */
  export interface RecordRef<Value = any> {
    /** The record; `null` when there is none. Of a type whose records are made on first touch, its defaults. */
    get(): Promise<Value | null>;
    /** What a path matches. */
    select<Found = any>(path: string, parameters?: PathParameters): Promise<Found[]>;
    /** Makes or replaces the record. Fields left out get their defaults. Gives whether the record is new. */
    put(value: Value): Promise<boolean>;
    /** Sets every place that the path matches. Gives how many there were. */
    update(path: string, value: unknown, parameters?: PathParameters): Promise<number>;
    /** All of these in order or, if one fails, none. Gives how many places the paths matched. */
    patch(operations: PathOperation[], parameters?: PathParameters): Promise<number>;
    /** Deletes the record; gives whether there was one. */
    delete(): Promise<boolean>;
  }

  /** One step of a patch. */
  export interface PathOperation {
    op: "set" | "insert" | "insert-all" | "delete" | "clear" | "increment" | "append-unique" | "test";
    path: string;
    /** For those that need one. */
    value?: unknown;
  }

  export interface PathParameters {
    [name: string]: Json;
  }

  /** One object of a bucket. */
  export interface ObjectRef {
    /** Metadata and content, of at most 4 MiB; `null` when there is no object. */
    get(): Promise<StoredObject | null>;
    /** Metadata; `null` when there is no object. */
    head(): Promise<ObjectInfo | null>;
    /** Makes or replaces the object. The body has at most 1 MiB. */
    put(body: string | Uint8Array, options?: ObjectPutOptions): Promise<{ etag: string; version: string | null }>;
    /** Deletes the object; in a bucket that keeps versions, marks it as gone. */
    delete(options?: { /** Only the object with this ETag. */ ifMatch?: string }): Promise<void>;
  }

  export interface ObjectPutOptions {
    /** `binary/octet-stream` if it is not given. */
    contentType?: string;
    /** `x-amz-meta-` headers: visible ASCII, at most 2 KiB. Names become lower case. */
    metadata?: { [name: string]: string };
    /** Only if the object there has this ETag; `"*"`: only if there is one. */
    ifMatch?: string;
    /** `"*"`: only if there is no object. */
    ifNoneMatch?: string;
  }

  export interface ObjectInfo {
    readonly sizeBytes: number;
    readonly etag: string;
    /** When it was written, in milliseconds since 1970. */
    readonly modifiedMs: number;
    readonly contentType: string;
    readonly metadata: { [name: string]: string };
    /** The version's id, where the bucket keeps versions; otherwise `null`. */
    readonly version: string | null;
  }

  export interface StoredObject extends ObjectInfo {
    bytes(): Uint8Array;
    /** Read as UTF-8. */
    text(): string;
    json(): any;
  }

  export interface ObjectsRef {
    /** One page of the bucket's objects, in the order of their keys. It sees what this transaction has written. */
    list(options?: ObjectListOptions): Promise<ObjectPage>;
  }

  export interface ObjectListOptions {
    /** Only keys that start with this. */
    prefix?: string;
    /** Keys with this behind the prefix are shown once, cut behind it, in `prefixes`. */
    delimiter?: string;
    /** `next` of the page before, or any key. */
    after?: string;
    /** At most so many keys and prefixes: 1 to 1,000, which is the default. */
    limit?: number;
  }

  export interface ObjectPage {
    objects: { key: string; sizeBytes: number; etag: string; modifiedMs: number }[];
    prefixes: string[];
    /** Where the next page begins; `null` on the last one. */
    next: string | null;
  }

  /** The records of a type, read from all shards: locked one after the other, as far as they are given. */
  export interface RecordsRef<Value = any> {
    /** Records that a predicate holds for, a page at a time. */
    find(options?: FindOptions): Promise<RecordPage<Value>>;
    /** Several records by id, at most 1,000, in the order of the ids. */
    getMany(ids: (string | Uint8Array)[]): Promise<(RecordRow<Value> | MissingRecord)[]>;
  }

  export interface FindOptions {
    /** A predicate of the path language; all records without. */
    where?: string;
    /** Values of `$name` in it. */
    parameters?: PathParameters;
    /** A path to one scalar, `-` before it for the reverse; by id without. */
    order?: string;
    /** Only ids that start with this. */
    prefix?: string | Uint8Array;
    /** `cursor` of the page before. */
    cursor?: string;
    /** At most so many: 1 to 1,000; 50 by default. */
    limit?: number;
  }

  export interface RecordPage<Value = any> {
    records: RecordRow<Value>[];
    /** Where the next page begins; `null` on the last one. */
    cursor: string | null;
  }

  export interface RecordRow<Value = any> {
    id: string;
    /** Names the record's content: the same as long as that is. */
    etag: string;
    record: Value;
    error?: undefined;
  }

  /** A record that could not be given. */
  export interface MissingRecord {
    id: string;
    record?: undefined;
    error: { code: string; detail: string };
  }

  export interface SendOptions {
    /** How long to wait after the commit, at most ten years. Survives restarts. */
    delay_ms?: number;
    /**
     * The id that the workflow is to have: up to 128 letters, digits and characters of `._~:-`, the first one a letter
     * or a digit. A workflow that was started before with this id, handler, key and input is not started again.
     */
    id?: string;
  }

  /** What a query can do: read its entity. */
  export interface QueryContext extends Calls {
    readonly id: undefined;
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

  /** What can ask servers outside: routes and workflows. */
  export interface Outside {
    /**
     * Sends an HTTP request to a server outside and waits for its whole response. The app's
     * `millrace.toml` says which servers may be asked.
     *
     * A response with any status is a response, a redirect too. When none comes (the name is unknown, the
     * connection breaks, the time is up, the body is larger than 4 MiB) it throws an error with the code
     * `"fetch-failed"`: the other server may have acted or not. What the app may not ask throws
     * `"fetch-refused"`.
     *
     * A route asks before its first `ctx.call`, and once. A workflow asks again after a failure, and may
     * ask twice when the node stops at the wrong moment. Each fetch of a workflow has a header `idempotency-key`,
     * the same each time it is sent, unless you give one. A loop of your own around `fetch` makes another fetch
     * each time: give these one key, such as `ctx.id`.
     */
    fetch(url: string, options?: FetchOptions): Promise<FetchResponse>;
  }

  export interface FetchOptions {
    /** `GET` by default. */
    method?: string;
    /** At most 64, in visible ASCII. `host`, `content-length` and the like are set for you. */
    headers?: Record<string, string | number | (string | number)[]>;
    /**
     * A string (`text/plain; charset=utf-8`), bytes (no type), or anything else as JSON (`application/json`),
     * at most 4 MiB. A `content-type` among the headers takes precedence.
     */
    body?: unknown;
    /** How long the whole exchange may take, each time: 1 to 60,000; 10,000 by default. */
    timeoutMs?: number;
    /**
     * How often a workflow asks again after a failure, after 0.1 s, 0.2 s and so on up to a minute: 0 to 100; 5 by
     * default. A route's request is sent once, and has no such option.
     */
    retries?: number;
  }

  /** What a server outside answered. The whole body is there: reading it waits for nothing. */
  export interface FetchResponse {
    readonly status: number;
    /** Whether the status is 200 to 299. */
    readonly ok: boolean;
    /** By name in lower case; `get` takes any case and gives `null` for what is absent. Repeated headers are joined. */
    readonly headers: { get(name: string): string | null } & Record<string, string>;
    /** The body as text. */
    text(): string;
    /** The body as JSON. Throws a `SyntaxError` when it is none. */
    json<Value = any>(): Value;
    /** The body's bytes. */
    bytes(): Uint8Array;
  }

  /** What a route can do. It has no entity of its own: it reaches entities with `call`. */
  export interface RouteContext extends Calls, Outside {
    readonly key: undefined;
    readonly id: undefined;
  }

  /**
   * What a workflow can do. It runs for as long as it takes, through crashes, restarts and
   * deployments. Each thing it awaits here is a transaction of its own whose result is noted in
   * the workflow's journal. After a crash the function runs again from its beginning and
   * gets the noted results, so it comes to where it was without doing anything twice.
   *
   * For that the function must do the same again when it gets the same: it may use its input, what
   * it awaited and what `ctx` gives, but not variables of the module that change. It has no fields of
   * its own: it changes state through the handlers it calls. CPU time is limited from one
   * wait to the next.
   */
  export interface WorkflowContext extends Calls, Outside {
    /** The key that the workflow was started with. */
    readonly key: string;
    /** The key as bytes. */
    readonly keyBytes: Uint8Array;
    /** The invocation's id: what `ctx.signal` and `/invocations/{id}` take. */
    readonly id: string;

    /**
     * Calls a handler: a transaction of its own, made exactly once. An error of the callee is
     * thrown here; nothing but that call is rolled back.
     */
    call<Output = any>(
      service: string,
      key: string | Uint8Array,
      handler: string,
      input?: unknown,
      options?: TriedOptions,
    ): Promise<Output>;

    /** Waits, also through restarts. A fraction of a millisecond is cut off; ten years are the most. */
    sleep(ms: number): Promise<null>;

    /**
     * Waits for the next signal of this name that no other `wait` has taken; gives its payload. A
     * signal that came before is there at once. Throws an error with the code `"wait-limit"` when none comes
     * in time; without a timeout it waits for ever.
     */
    wait<Payload = any>(name: string, options?: WaitOptions): Promise<Payload>;

    /**
     * Waits for the end of another workflow of the app and gives its output. If that workflow failed, throws its error;
     * if it was cancelled, an error with the code `"workflow-ended"`. Throws an error with the code `"wait-limit"` when
     * it does not end in time; without a timeout it waits for ever.
     */
    result<Output = any>(id: string, options?: WaitOptions): Promise<Output>;

    /**
     * Runs a piece of code and notes its result as JSON, which is what every run gets: for what must not be
     * computed again, or not be seen to change. Code whose result is noted never runs again; code
     * that a crash interrupted does. It may await what `ctx` gives, but must await all it starts,
     * and should hand its result out with `return` only.
     *
     * The code runs when the workflow has come to a wait, not before `step` returns. An `Abort` that it
     * throws is noted too and thrown here. After any other error the code runs again, several times with growing
     * pauses; then the workflow is paused.
     * The name (at most 256 bytes) shows in the journal.
     */
    step<Result>(name: string, code: () => Result | Promise<Result>, options?: TriedOptions): Promise<Result>;

    /**
     * Says how to undo what comes next: a call to make if the workflow fails or is cancelled. The
     * calls are made one after the other, the last one said first. Say it before what it undoes, and
     * let it undo nothing when there is nothing to undo.
     */
    compensate(service: string, key: string | Uint8Array, handler: string, input?: unknown): void;
  }

  export interface TriedOptions {
    /** How it is tried again after an error that is not an `Abort`. What is left out is as the app's `millrace.toml` says. */
    retry?: Retry;
  }

  export interface Retry {
    /** How often in all, from 1; `Infinity` is without end. 16 unless the app says otherwise. */
    attempts?: number;
    /** The pause after the first attempt, 100 unless the app says otherwise. Each further one is twice as long. */
    firstMs?: number;
    /** The longest pause, 60,000 unless the app says otherwise. */
    longestMs?: number;
  }

  export interface WaitOptions {
    /** From 0 to ten years. */
    timeoutMs?: number;
  }

  export type Handler<Input = any, Output = any> = (ctx: Context, input: Input) => Output | Promise<Output>;
  export type QueryHandler<Input = any, Output = any> = (ctx: QueryContext, input: Input) => Output | Promise<Output>;

  const queryBrand: unique symbol;
  /** A handler made with `query`. */
  export type Query<Input = any, Output = any> = QueryHandler<Input, Output> & { readonly [queryBrand]: true };

  export type WorkflowHandler<Input = any, Output = any> = (ctx: WorkflowContext, input: Input) => Promise<Output>;

  const workflowBrand: unique symbol;
  /** A handler made with `workflow`. */
  export type Workflow<Input = any, Output = any> = ((ctx: any, input: Input) => Promise<Output>) & {
    readonly [workflowBrand]: true;
  };

  /**
   * Declares a service: the default export of a file at the app's top, whose name it has.
   *
   * Each property is a handler, callable as `POST /call/{service}/{key}/{name}` and with
   * `ctx.call`; its input and output are JSON. Names starting with `_` are no handlers: no call reaches
   * them, only `this._name`. The object is frozen; `this` inside a handler is that object.
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

  /**
   * Marks a handler that runs for long, in many steps; see `WorkflowContext`. It is started with
   * `POST /send/{service}/{key}/{name}` or `ctx.send`, which give its invocation's id.
   *
   * ```ts
   * export default service({
   *   order: workflow(async (ctx, { item, price }: { item: string; price: number }) => {
   *     ctx.compensate("account", ctx.key, "deposit", price);
   *     await ctx.call("account", ctx.key, "withdraw", price);
   *     const response = await ctx.fetch("https://shop.example/orders", { method: "POST", body: { id: ctx.id, item } });
   *     if (!response.ok) throw new Abort("the shop refused");
   *     return await ctx.wait("delivered", { timeoutMs: 7 * 24 * 3600 * 1000 });
   *   }),
   * });
   * ```
   */
  export function workflow<Input = any, Output = any>(
    handler: WorkflowHandler<Input, Output>,
  ): Workflow<Input, Output>;

  /** A call that is made again and again. */
  export interface Schedule {
    /**
     * When: `minute hour day-of-month month day-of-week` as in crontab(5), in UTC, or one of `@hourly`, `@daily`,
     * `@weekly`, `@monthly`, `@yearly`. Values, lists `1,15`, ranges `mon-fri`, steps `0-59/10`; names of
     * months and weekdays have three letters. When neither day field starts with `*`, a day that matches
     * either of them is due.
     */
    cron: string;
    /** The name of a handler of this service; not a query. */
    handler: string;
    /** The entity to call it on. */
    key: string | Uint8Array;
    /** JSON; `null` by default. */
    input?: unknown;
  }

  /**
   * The export `schedules` of a service:
   *
   * ```ts
   * export const schedules: Schedules = {
   *   nightly: { cron: "0 3 * * *", handler: "sweep", key: "main" },
   * };
   * ```
   */
  export interface Schedules {
    [name: string]: Schedule;
  }

  /**
   * Refuses the call and rolls back everything it did. It is terminal: it is not tried again, nor is an error of a class
   * that extends it. The caller gets status 409, code `aborted`,
   * as `detail` this message, and as `payload` the payload. Thrown in a nested call, it ends the outer call
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
