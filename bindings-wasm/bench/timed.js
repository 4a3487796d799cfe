// The measuring loop of both benchmarks, which runs in pages, and what their programs print. Knows
// nothing of how bytes are exchanged.

/** Bytes of the tensors that are exchanged. */
export const SIZES = [64, 64 << 10, 1 << 20, 4 << 20];

/** Exchanges of each kind that are not timed, as the others are not yet warm. */
const WARM_UP = 5;

/** How often a peer must exchange `bytes` with `timed`. */
export const exchangesOf = (bytes) => WARM_UP + (bytes > 1 << 20 ? 30 : 60);

/** The times of exchanges of `bytes` of each kind, ms; the kinds take turns. */
export async function timed(exchanges, bytes) {
  const [mine, theirs] = [new Uint8Array(bytes).fill(1), new Uint8Array(bytes)];
  const times = Object.fromEntries(Object.keys(exchanges).map((kind) => [kind, []]));
  for (let round = 0; round < exchangesOf(bytes); round += 1) {
    for (const [kind, list] of Object.entries(times)) {
      const began = performance.now();
      await exchanges[kind](mine, theirs);
      if (round >= WARM_UP) list.push(performance.now() - began);
    }
  }
  return times;
}

/** A line for one size: medians, and how many times raw's the time of messages is. */
export function line(bytes, times) {
  const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
  const all = Object.values(times).map(median);
  all.splice(2, 0, median(times.messages) / median(times.raw));
  return `${String(bytes).padEnd(9)} ${all.map((it) => it.toFixed(2).padStart(10)).join(" ")}`;
}

/** What stands above the lines. */
export const HEAD = "bytes         raw ms  messages ms    ratio";
