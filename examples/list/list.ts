// A list an entity, an item a field: an append writes one item, however long the list is.
import { service, query, Abort, type Context, type QueryContext } from "millrace";

// What one `entries` gives and one transaction may write, so that lists can be read and joined whole.
const LIST_ITEMS = 9000;

export default service({
  /** Appends an item; answers the new size. */
  append(ctx, item: unknown) {
    return appendAll(ctx, [item]);
  },

  /** The item at an index from 0. */
  index: query((ctx, index: number) => {
    if (!Number.isInteger(index) || index < 0 || index >= size(ctx)) throw new Abort(`there is no item ${index}`);
    return ctx.get(field(index));
  }),

  /** Removes the last item and answers it. */
  pop(ctx) {
    const last = size(ctx) - 1;
    if (last < 0) throw new Abort("the list is empty");
    const item = ctx.get(field(last));
    ctx.delete(field(last));
    ctx.set("size", last);
    return item;
  },

  /** Appends all items of another list, which stays as it is; answers the new size. */
  async concat(ctx, other: string) {
    return appendAll(ctx, await ctx.call<unknown[]>("list", other, "items"));
  },

  items: query((ctx) => ctx.entries({ prefix: "item/" }).map(([, item]) => item)),
});

const size = (ctx: QueryContext): number => ctx.get("size") ?? 0;

// Zero-padded, so that the order of the fields is the order of the items.
const field = (index: number) => `item/${String(index).padStart(4, "0")}`;

function appendAll(ctx: Context, items: unknown[]): number {
  const start = size(ctx);
  const end = start + items.length;
  if (end > LIST_ITEMS) throw new Abort(`a list holds at most ${LIST_ITEMS} items`);
  items.forEach((item, offset) => ctx.set(field(start + offset), item));
  ctx.set("size", end);
  return end;
}
