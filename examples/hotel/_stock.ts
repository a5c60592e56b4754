// What a hotel and a flight have in common: so many places, of which some are left.
import { service, query, Abort } from "millrace";

export type Stock = { capacity: number; left: number };

export const stock = (kind: string) =>
  service({
    add(ctx, capacity: number) {
      if (!Number.isSafeInteger(capacity) || capacity < 0) throw new Abort("capacity must be a whole number from 0");
      if (ctx.get("capacity") !== undefined) throw new Abort(`${kind} ${ctx.key} exists already`);
      ctx.set("capacity", capacity);
      ctx.set("left", capacity);
    },

    /** Takes one place, or says why there is none to take. */
    take(ctx): string | null {
      const left = ctx.get("left");
      if (left === undefined) return `there is no ${kind} ${ctx.key}`;
      if (left === 0) return `${kind} ${ctx.key} is full`;
      ctx.set("left", left - 1);
      return null;
    },

    state: query((ctx): Stock => ({ capacity: ctx.get("capacity") ?? 0, left: ctx.get("left") ?? 0 })),
  });
