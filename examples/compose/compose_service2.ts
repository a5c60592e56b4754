import { service, query, Abort, type Context } from "millrace";
import { append, items } from "./_list.ts";

export default service({
  append,
  items: query(items),

  /** Appends, and refuses what is above 10 only then: the refusal has to undo the append. */
  appendUpTo10(ctx: Context, v: number) {
    const list = append(ctx, v);
    if (v > 10) throw new Abort(`service2 takes no more than 10, and ${v} is more`);
    return list;
  },
});
