// Which hotels and flights there are, for the audit. Written when one is added, never by a reservation.
import { service, query, Abort } from "millrace";

// So that an audit stays below the 10,000 calls that one transaction may make, 1,024 of them at once.
const IDS = 1000;

export default service({
  add(ctx, id: string) {
    const count = ctx.get("count") ?? 0;
    if (count === IDS) throw new Abort(`this example keeps at most ${IDS} hotels and as many flights`);
    ctx.set(`id/${id}`, true);
    ctx.set("count", count + 1);
  },
  ids: query((ctx) => ctx.fields({ prefix: "id/" }).map((field) => field.slice("id/".length))),
});
