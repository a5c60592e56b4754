// Reviews by their id; the key is a bucket.
import { service, query } from "millrace";

export default service({
  add(ctx, review: { id: string }) {
    ctx.set(`review/${review.id}`, review);
    ctx.set("count", (ctx.get("count") ?? 0) + 1);
  },
  get: query((ctx, id: string) => ctx.get(`review/${id}`) ?? null),
  count: query((ctx): number => ctx.get("count") ?? 0),
});
