import { service } from "millrace";

export default service({
  add(ctx, n: number) {
    const value = (ctx.get("value") ?? 0) + n;
    ctx.set("value", value);
    return value;
  },
});
