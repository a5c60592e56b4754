// A login service: one entity per user, holding what is needed to check a password.
//
// Passwords travel through this file as the bytes the client sent, one character a byte (what
// atob gives). For ASCII that is the text itself, so the common login decodes nothing.
import { service, query, Abort, type Context, type Request, type RouteContext } from "millrace";

const REALM = { "www-authenticate": 'Basic realm="user", charset="UTF-8"' };
const UNAUTHORIZED = { status: 401, headers: REALM, body: "unauthorized\n" };
const WRONG = "wrong user or password";

// The gateway of an outside database, which millrace.toml allows to be reached.
const OUTSIDE = "http://127.0.0.1:8090/users";

// Names are ASCII without `:` (Basic auth ends the name there) and without `{` (which would let
// strangers choose the shard).
const NAME = /^[A-Za-z0-9_.@+-]{1,64}$/;
const PASSWORD_CHARACTERS = 1024;
const HEADER_CHARACTERS = 8192;
const NON_ASCII = /[^\x00-\x7f]/;

export default service({
  /** Stores a new user; false when the name is taken. */
  async register(ctx, password: string) {
    if (!NAME.test(ctx.key)) throw new Abort("a user's name is 1 to 64 of A-Z a-z 0-9 _ . @ + -");
    checkPassword(password);
    if (ctx.get("credential") !== undefined) return false;
    ctx.set("credential", await crypto.argon2id.hash(password));
    return true;
  },

  /** Replaces the password of a user who knows it. */
  async change(ctx, { password, to }: { password: string; to: string }) {
    checkPassword(password);
    checkPassword(to);
    const credential = ctx.get("credential");
    if (credential === undefined || !(await verify(credential, toBytes(password)))) throw new Abort(WRONG);
    ctx.set("credential", await crypto.argon2id.hash(to));
  },

  /** Stores or replaces a user of a system that kept hex SHA-1(password + salt). */
  import(ctx, { scheme, salt, hash }: { scheme: string; salt: string; hash: string }) {
    if (scheme !== "sha1") throw new Abort("scheme must be sha1");
    if (typeof salt !== "string" || salt.length > 256) throw new Abort("salt must be a string of at most 256 characters");
    if (!/^[0-9a-f]{40}$/.test(hash)) throw new Abort("hash must be 40 lower-case hex digits");
    ctx.set("credential", SHA1 + hash + salt);
  },

  /** "ok", or an abort: for programs that call handlers. */
  login: query(async (ctx, { password }: { password: string }) => {
    checkPassword(password);
    const credential = ctx.get("credential");
    if (credential === undefined || !(await verify(credential, toBytes(password)))) throw new Abort(WRONG);
    return "ok";
  }),

  /** The reply of `GET /user/login`, made where the state is: the route only passes it on. */
  check: query((ctx, sent: string) => {
    const credential = ctx.get("credential");
    const known = credential !== undefined && verify(credential, sent);
    if (typeof known === "boolean") return known ? "ok" : UNAUTHORIZED;
    return known.then((right) => (right ? "ok" : UNAUTHORIZED));
  }),
});

export const routes = {
  async "POST /register"(ctx: Context, request: Request) {
    const refuse = (error: string) => ({ status: 400, body: { error } });
    let user;
    try {
      user = request.json();
    } catch {
      return refuse("the body is not JSON");
    }
    const { username, password } = user ?? {};
    if (typeof username !== "string" || !NAME.test(username)) {
      return refuse("username must be 1 to 64 of A-Z a-z 0-9 _ . @ + -");
    }
    if (!isPassword(password)) return refuse(`password must be 1 to ${PASSWORD_CHARACTERS} characters`);
    const added = await ctx.call("user", username, "register", password);
    return added ? { status: 201, body: { username } } : { status: 409, body: { error: "the name is taken" } };
  },

  // Not async: the handler's promise is the reply, so a login costs one call and nothing else. What
  // `credentials` does is written out here, too: this is the request that there are most of.
  "GET /login"(ctx: Context, request: Request) {
    const header = request.header("authorization");
    if (!header || header.length > HEADER_CHARACTERS) return UNAUTHORIZED;
    if (!header.startsWith("Basic ") && !/^basic /i.test(header)) return UNAUTHORIZED;
    let pair;
    try {
      pair = atob(header.slice(6));
    } catch {
      return UNAUTHORIZED;
    }
    const colon = pair.indexOf(":");
    if (colon < 1 || colon > 64) return UNAUTHORIZED;
    return ctx.call("user", pair.slice(0, colon), "check", pair.slice(colon + 1));
  },

  // The same for users who live in somebody else's database (see outside/README.md). The route
  // waits for the answer; the core goes on with other requests meanwhile.
  async "GET /mongo_login"(ctx: RouteContext, request: Request) {
    const sent = credentials(request);
    if (sent === undefined) return UNAUTHORIZED;
    const found = await ctx.fetch(`${OUTSIDE}?username=eq.${encodeURIComponent(toText(sent.name))}`);
    if (!found.ok) return { status: 502, body: "the user database does not answer\n" };
    const [user] = found.json();
    return user !== undefined && verify(SHA1 + user.hash + user.salt, sent.password) === true ? "ok" : UNAUTHORIZED;
  },
};

/** Name and password of HTTP Basic authentication, as the bytes that were sent. */
function credentials(request: Request): { name: string; password: string } | undefined {
  const header = request.header("authorization");
  if (!header || header.length > HEADER_CHARACTERS) return undefined;
  if (!header.startsWith("Basic ") && !/^basic /i.test(header)) return undefined;
  let pair;
  try {
    pair = atob(header.slice(6));
  } catch {
    return undefined;
  }
  const colon = pair.indexOf(":");
  if (colon < 1 || colon > 64) return undefined;
  return { name: pair.slice(0, colon), password: pair.slice(colon + 1) };
}

// A credential is a PHC string of argon2id, or SHA1, 40 hex digits, salt.
const SHA1 = "$sha1$";
const HASH_END = SHA1.length + 40;

/** Whether `sent` is the password of `credential`; at once where that takes no slow hash. */
function verify(credential: string, sent: string): boolean | Promise<boolean> {
  if (!credential.startsWith(SHA1)) {
    const digest = digestOf(credential, sent);
    return verified.has(digest) || verifySlowly(credential, sent, digest);
  }
  const salt = credential.slice(HASH_END);
  const hash = credential.slice(SHA1.length, HASH_END);
  return (
    crypto.sha1(sent + salt, "hex") === hash ||
    (NON_ASCII.test(sent) && crypto.sha1(toText(sent) + salt, "hex") === hash)
  );
}

async function verifySlowly(credential: string, sent: string, digest: string): Promise<boolean> {
  if (!(await crypto.argon2id.verify(toText(sent), credential))) return false;
  // Module state lives as long as the service does on this core, so it has to be bounded.
  if (verified.size >= VERIFIED_LIMIT) verified.clear();
  verified.add(digest);
  return true;
}

// Digests of logins that succeeded on this core. A digest covers the stored credential, which
// every login reads, so a changed password is never served from here; and it is keyed with a
// secret that never leaves this memory, so it is of no use to guess passwords with.
const VERIFIED_LIMIT = 10_000;
const verified = new Set<string>();
let secret = "";

function digestOf(credential: string, sent: string): string {
  if (secret === "") secret = crypto.randomUUID() + crypto.randomUUID();
  return crypto.hmacSha256(secret, credential + "\0" + sent, "hex");
}

function isPassword(password: unknown): password is string {
  return typeof password === "string" && password.length >= 1 && password.length <= PASSWORD_CHARACTERS;
}

function checkPassword(password: unknown): void {
  if (!isPassword(password)) throw new Abort(`password must be a string of 1 to ${PASSWORD_CHARACTERS} characters`);
}

function toText(bytes: string): string {
  if (!NON_ASCII.test(bytes)) return bytes;
  return new TextDecoder().decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
}

function toBytes(text: string): string {
  if (!NON_ASCII.test(text)) return text;
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}
