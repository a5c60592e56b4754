// A directed graph in one entity: field `to/<node>` holds the node's list of destinations.
import { service, query, Abort, type Context, type Request } from "millrace";
import { parse } from "./_edges.ts";

const MAX_DEPTH = 64;

export default service({
  /** Appends to the lists and answers the graph's totals. */
  append(ctx, lists: [string, string[]][]) {
    const totals = ctx.get("totals") ?? { keys: 0, edges: 0 };
    for (const [source, added] of lists) {
      if (typeof source !== "string" || !Array.isArray(added)) throw new Abort("expected [[source, [destination, …]], …]");
      const list = ctx.get(`to/${source}`);
      if (list === undefined) totals.keys += 1;
      totals.edges += added.length;
      ctx.set(`to/${source}`, list === undefined ? added : list.concat(added));
    }
    ctx.set("totals", totals);
    return totals;
  },

  /** Sums the lengths of the lists met on all paths of up to `depth` lists from `from`. */
  count: query((ctx, { from, depth }: { from: string; depth: number }) => {
    // Paths grow exponentially; nodes do not. So count how many paths arrive at each node, level
    // by level, instead of walking the paths.
    const lists = new Map<string, string[]>();
    let arriving = new Map([[from, 1]]);
    let sum = 0;
    for (let level = 1; level <= depth && arriving.size > 0; level += 1) {
      const next = new Map<string, number>();
      for (const [node, paths] of arriving) {
        let list = lists.get(node);
        if (list === undefined) lists.set(node, (list = (ctx.get(`to/${node}`) ?? []) as string[]));
        sum += paths * list.length;
        if (level === depth) continue;
        for (const to of list) next.set(to, (next.get(to) ?? 0) + paths);
      }
      arriving = next;
    }
    return Number.isSafeInteger(sum) ? sum : null;
  }),
});

const refuse = (status: number, error: string) => ({ status, body: { error } });

export const routes = {
  async "POST /load"(ctx: Context, request: Request) {
    const parsed = parse(request.text());
    if (parsed.error !== undefined) return refuse(400, parsed.error);
    return { body: await ctx.call("graph", "graph", "append", parsed.lists) };
  },

  async "GET /count"(ctx: Context, request: Request) {
    const from = request.query.get("k") ?? "";
    const depth = Number(request.query.get("depth") || NaN);
    if (from === "" || from.length > 64) return refuse(400, "k must be a node's name of at most 64 characters");
    if (!Number.isInteger(depth) || depth < 1 || depth > MAX_DEPTH) {
      return refuse(400, `depth must be a whole number from 1 to ${MAX_DEPTH}`);
    }
    const sum = await ctx.call("graph", "graph", "count", { from, depth });
    return sum === null ? refuse(422, "the count exceeds 2^53, so it cannot be exact") : { body: sum };
  },
};
