// The orders of one flight: an entity for each, so that orders of different flights do not wait for each other.
import { service, query, Abort } from "millrace";

export default service({
  /** A room, a seat and the order for them, or an Abort and none of them. */
  async place(ctx, { user, hotel }: { user: string; hotel: string }) {
    const [noRoom, noSeat] = await Promise.all([
      ctx.call<string | null>("hotel", hotel, "take"),
      ctx.call<string | null>("hotel_flight", ctx.key, "take"),
    ]);
    // One of the two may have been taken; throwing gives it back.
    const problem = noRoom ?? noSeat;
    if (problem !== null) throw new Abort(problem);

    const count = ctx.get("count") ?? 0;
    ctx.set(`order/${String(count).padStart(9, "0")}`, { user, hotel, at: ctx.now() });
    ctx.set("count", count + 1);
  },

  count: query((ctx): number => ctx.get("count") ?? 0),

  orders: query((ctx, input: { after?: string; limit?: number } | null) =>
    ctx.entries({ prefix: "order/", after: input?.after, limit: input?.limit ?? 100 }),
  ),
});
