// Work of a known length. A function has no running clock (ctx.now() stands still during a call),
// so length is counted in rounds.

/** Rounds a millisecond takes in the interpreter, about; measured on a 2-core test machine. */
const ROUNDS_PER_MS = 16_000;

export const MAX_SPIN_MS = 1000;

export function isSpin(ms: unknown): ms is number {
  return typeof ms === "number" && ms >= 0 && ms <= MAX_SPIN_MS;
}

/** Uses about `ms` milliseconds of CPU; answers a number that depends on every round. */
export function spin(ms: number): number {
  let word = 1;
  for (let round = Math.round(ms * ROUNDS_PER_MS); round > 0; round -= 1) {
    word ^= word << 13;
    word ^= word >> 17;
    word ^= word << 5;
  }
  return word;
}
