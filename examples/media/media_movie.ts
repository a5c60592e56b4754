// A movie's id by its title.
import { service, query, Abort } from "millrace";

export default service({
  register(ctx, id: string) {
    if (ctx.get("id") !== undefined) throw new Abort(`the movie ${ctx.key} is registered already`);
    ctx.set("id", id);
  },
  id: query((ctx) => {
    const id = ctx.get("id");
    if (id === undefined) throw new Abort(`there is no movie ${ctx.key}`);
    return id;
  }),
});
