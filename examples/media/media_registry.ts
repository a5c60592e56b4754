// Which users and movies there are, for the audit. Written when one is registered, never by a compose.
import { service, query, Abort } from "millrace";

// So that an audit stays below the 10,000 calls that one transaction may make.
const NAMES = 4000;

export default service({
  add(ctx, name: string) {
    const count = ctx.get("count") ?? 0;
    if (count === NAMES) throw new Abort(`this example keeps at most ${NAMES} users and as many movies`);
    const field = `name/${name}`;
    if (ctx.get(field) !== undefined) throw new Abort(`${name} is registered already`);
    ctx.set(field, true);
    ctx.set("count", count + 1);
  },
  names: query((ctx) => ctx.fields({ prefix: "name/" }).map((field) => field.slice("name/".length))),
});
