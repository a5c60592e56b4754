import { service, query, Abort } from "millrace";

type Line = { sku: string; count: number };
type Change = { record: { stock: number; mark: number } | null; before: { stock: number } | null };

const ORDER_CHARACTERS = 64;
// Each is a record of its own, perhaps on another shard.
const LINES = 100;

/** A warehouse. Its orders are its own state, its stock is records of the type `item`: both change in one transaction. */
export default service({
  /** Takes every line from stock, or none, and keeps the order. */
  async order(ctx, input: { order: string; lines: Line[] }) {
    const { order, lines } = check(input);
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

/** The type's trigger keeps stock from falling below 0; that nothing is put into stock by an order is for this. */
function check(input: any): { order: string; lines: Line[] } {
  const { order, lines } = input ?? {};
  if (typeof order !== "string" || order === "" || order.length > ORDER_CHARACTERS) {
    throw new Abort(`order must be a string of 1 to ${ORDER_CHARACTERS} characters`);
  }
  const isLine = (line: any) =>
    typeof line?.sku === "string" && line.sku !== "" && Number.isSafeInteger(line.count) && line.count >= 1;
  if (!Array.isArray(lines) || lines.length === 0 || lines.length > LINES || !lines.every(isLine)) {
    throw new Abort(`lines must be 1 to ${LINES} of {"sku","count"}, each count a whole number from 1`);
  }
  return { order, lines };
}
