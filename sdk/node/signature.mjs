// Who may invoke a worker: the server, whose requests are signed with a secret of both, or with a private key of its own.
import { createHash, createHmac, createPublicKey, timingSafeEqual, verify } from "node:crypto";

const env = (name) => process.env[name] || undefined;
const KEY_HINT = "the worker's public key is not what `millrace apps worker-key APP` prints";

/** What says whether a signature fits a text: of one of both, as given or else of the environment. `undefined`: nothing is signed. */
export function verifierOf({ secret, publicKey }) {
  if (secret === undefined && publicKey === undefined) [secret, publicKey] = [env("MILLRACE_WORKER_SECRET"), env("MILLRACE_WORKER_PUBLIC_KEY")];
  if (secret !== undefined && publicKey !== undefined) throw new Error("a worker has a secret or a public key, not both");
  if (publicKey !== undefined) return ofKey(publicKey);
  return secret === undefined ? undefined : ofSecret(secret);
}

function ofSecret(secret) {
  // An empty one is what a variable gives that is not set: whoever signs with it would be let in.
  if (!(typeof secret === "string" || Buffer.isBuffer(secret)) || Buffer.byteLength(secret) < 16) throw new Error("a worker's secret has at least 16 bytes");
  return (given, text) => {
    const wanted = Buffer.from(`v1=${createHmac("sha256", secret).update(text).digest("hex")}`), bytes = Buffer.from(given);
    return bytes.length === wanted.length && timingSafeEqual(bytes, wanted);
  };
}

function ofKey(digits) {
  if (!/^[0-9a-f]{64}$/i.test(digits)) throw new Error(KEY_HINT);
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: Buffer.from(digits, "hex").toString("base64url") }, format: "jwk" });
  return (given, text) => /^ed25519=[0-9a-f]{128}$/.test(given) && verify(null, Buffer.from(text), key, Buffer.from(given.slice(8), "hex"));
}

/** Why a request is not the server's; `null` if it is. */
export function refusal(fits, request, body) {
  const { "millrace-expires": expires = "", "millrace-attempt": attempt = "", "millrace-signature": given = "" } = request.headers;
  if (!fits) return /^(::1|(::ffff:)?127\.)/.test(request.socket.remoteAddress ?? "") ? null : "a worker without a secret answers only this machine";
  const lines = [request.method, request.url.split("?")[0], expires, attempt, createHash("sha256").update(body).digest("hex")];
  if (!fits(given, lines.map((line) => `${line}\n`).join(""))) return "the signature does not fit";
  return /^\d+$/.test(expires) && Date.now() / 1000 <= Number(expires) ? null : "the signature has expired";
}
