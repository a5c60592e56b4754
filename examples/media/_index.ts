import { service, query } from "millrace";

/** A service whose entities are lists of reviews' ids, in the order they came. */
export const index = () =>
  service({
    add(ctx, id: string) {
      const count = ctx.get("count") ?? 0;
      ctx.set(`review/${String(count).padStart(9, "0")}`, id);
      ctx.set("count", count + 1);
    },
    ids: query((ctx, input: { after?: string; limit?: number } | null) =>
      ctx.entries<string>({ prefix: "review/", after: input?.after, limit: input?.limit ?? 100 }),
    ),
    count: query((ctx): number => ctx.get("count") ?? 0),
  });
