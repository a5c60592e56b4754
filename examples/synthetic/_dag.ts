// Ten tasks: how long each takes and which it waits for.

export type Task = { ms: number; after: string[] };

//   a ─┬─ b ── e ─┬─ h ─┐        longest way: a b e h j = 40 ms
//      ├─ c ── f ─┼─ i ─┴─ j     all the work: 70 ms
//      └─ d ── g ─┘
export const DAG: Record<string, Task> = {
  a: { ms: 5, after: [] },
  b: { ms: 10, after: ["a"] },
  c: { ms: 5, after: ["a"] },
  d: { ms: 5, after: ["a"] },
  e: { ms: 10, after: ["b"] },
  f: { ms: 10, after: ["c"] },
  g: { ms: 5, after: ["d"] },
  h: { ms: 10, after: ["e", "f"] },
  i: { ms: 5, after: ["f", "g"] },
  j: { ms: 5, after: ["h", "i"] },
};

/** The length of the longest way to each task's end; tasks stand after those they wait for. */
export function criticalPathMs(dag: Record<string, Task>): number {
  const end: Record<string, number> = {};
  for (const [name, { ms, after }] of Object.entries(dag)) {
    end[name] = ms + Math.max(0, ...after.map((earlier) => end[earlier]));
  }
  return Math.max(...Object.values(end));
}
