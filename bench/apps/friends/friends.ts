// Who is a friend of whom: one entity, a field for each person.
import { query, service } from "millrace";

export default service({
  load(ctx, lists: Record<string, number[]>) {
    for (const [person, friends] of Object.entries(lists)) ctx.set(person, friends);
  },

  // How many friends the friends of a person have, each friendship counted.
  walk: query((ctx, start: number) => {
    let count = 0;
    for (const friend of ctx.get<number[]>(`${start}`) ?? []) count += (ctx.get<number[]>(`${friend}`) ?? []).length;
    return count;
  }),
});
