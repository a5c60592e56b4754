// A transaction across three services, each of which owns a list: all three append, or none does.
import { service, query, Abort, type Context, type Routes } from "millrace";
import { append, items } from "./_list.ts";

// Different keys, so that in general the three lists live on different shards.
const FRONT_END = "front-end";
const SERVICE1 = "service1";
const SERVICE2 = "service2";

export default service({
  append: (ctx, v: number) => appendEverywhere(ctx, v, "append"),

  /** The caller changes its mind after all three have appended. */
  async appendUserAbort(ctx, v: number) {
    const lists = await appendEverywhere(ctx, v, "append");
    if (v <= 10) throw new Abort(`v must be above 10, and ${v} is not`);
    return lists;
  },

  /** A callee refuses; its Abort passes through here and ends the whole transaction. */
  appendCalleeThrows: (ctx, v: number) => appendEverywhere(ctx, v, "appendUpTo10"),

  lists: query((ctx) =>
    Promise.all([
      items(ctx),
      ctx.call<number[]>("compose_service1", SERVICE1, "items"),
      ctx.call<number[]>("compose_service2", SERVICE2, "items"),
    ]),
  ),
});

function appendEverywhere(ctx: Context, v: number, handlerOfService2: string): Promise<number[][]> {
  return Promise.all([
    append(ctx, v),
    ctx.call("compose_service1", SERVICE1, "append", v),
    ctx.call("compose_service2", SERVICE2, handlerOfService2, v),
  ]);
}

export const routes: Routes = {
  "POST /append": (ctx, request) => ctx.call("compose", FRONT_END, "append", request.json()),
  "POST /append-user-abort": (ctx, request) => ctx.call("compose", FRONT_END, "appendUserAbort", request.json()),
  "POST /append-callee-throws": (ctx, request) => ctx.call("compose", FRONT_END, "appendCalleeThrows", request.json()),
  "GET /lists": (ctx) => ctx.call("compose", FRONT_END, "lists"),
};
