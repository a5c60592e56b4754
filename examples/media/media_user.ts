// Users and their passwords.
//
// A salted HMAC-SHA-256 and not argon2id, because this example is about composing: a slow hash at each
// compose would be all that one could measure. A service with real users takes argon2id and remembers
// logins that succeeded, as examples/login does.
import { service, query, Abort } from "millrace";

type Credential = { salt: string; hash: string };

export default service({
  register(ctx, password: string) {
    if (ctx.get("credential") !== undefined) throw new Abort(`the name ${ctx.key} is taken`);
    const salt = ctx.uuid();
    ctx.set("credential", { salt, hash: crypto.hmacSha256(salt, password, "hex") });
  },

  /** The user's name, if the password is right. */
  login: query((ctx, password: string) => {
    const credential = ctx.get<Credential>("credential");
    const hash = crypto.hmacSha256(credential?.salt ?? "", password, "hex");
    if (!credential || !crypto.timingSafeEqual(hash, credential.hash)) throw new Abort("wrong user or password");
    return ctx.key;
  }),
});
