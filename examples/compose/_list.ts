// A list in the fields of one entity, `item/<index>`: an append writes one field, however long the list is.
import { Abort, type Context, type QueryContext } from "millrace";

// What one `entries` gives, so that a list can be answered whole.
const LIST_ITEMS = 10_000;

export function append(ctx: Context, item: number): number[] {
  if (typeof item !== "number") throw new Abort("v must be a number");
  const size = ctx.get("size") ?? 0;
  if (size === LIST_ITEMS) throw new Abort(`a list holds at most ${LIST_ITEMS} items`);
  // Zero-padded, so that the order of the fields is the order of the items.
  ctx.set(`item/${String(size).padStart(5, "0")}`, item);
  ctx.set("size", size + 1);
  return items(ctx);
}

export function items(ctx: QueryContext): number[] {
  return ctx.entries<number>({ prefix: "item/" }).map(([, item]) => item);
}
