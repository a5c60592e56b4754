import { service, query, Abort } from "millrace";

type Line = { sku: string; count: number };
type Change = { record: { stock: number; mark: number } | null; before: { stock: number } | null };

/** A warehouse. Its orders are its own state, its stock is records of the type `item`: both change in one transaction. */
export default service({
  /** Takes every line from stock, or none, and keeps the order. */
  async order(ctx, { order, lines }: { order: string; lines: Line[] }) {
    if (ctx.get(`order/${order}`)) throw new Abort(`order ${order} exists`);
    await Promise.all(
      lines.map(({ sku, count }) =>
        ctx.record("item", sku).patch([
          { op: "increment", path: ".stock", value: -count },
          { op: "increment", path: ".reserved", value: count },
        ]),
      ),
    );
    ctx.set(`order/${order}`, lines);
    return order;
  },

  /** Sends an order off: what was reserved has left. */
  async ship(ctx, order: string) {
    const lines: Line[] | undefined = ctx.get(`order/${order}`);
    if (!lines) throw new Abort(`no order ${order}`);
    for (const { sku, count } of lines) {
      await ctx.record("item", sku).patch([{ op: "increment", path: ".reserved", value: -count }]);
    }
    ctx.delete(`order/${order}`);
  },

  orders: query((ctx) => [...ctx.entries({ prefix: "order/" })].map(([name, lines]) => [name.slice(6), lines])),

  /** The type's trigger `low` calls this after each change of an item's stock, once, on the entity with the item's id. */
  low(ctx, { record, before }: Change) {
    if (!record || record.stock >= record.mark || (before && before.stock < record.mark)) return;
    ctx.set("reorders", (ctx.get("reorders") ?? 0) + 1);
  },

  reorders: query((ctx) => ctx.get("reorders") ?? 0),
});
