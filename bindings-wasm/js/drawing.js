// Schedules, their timelines and their prices, for pages that draw them. Knows nothing of groups.

import init, * as wasm from "./wasm/polyrank.js";

await init();

export function collectives() {
  return JSON.parse(wasm.drawCollectives());
}

export function schedule(collective, algorithm, ranks, root, bytes) {
  return JSON.parse(wasm.drawSchedule(collective, algorithm, ranks, root, bytes));
}

export function prices(collective, ranks, bytes) {
  const all = wasm.drawPrices(collective, ranks, bytes);
  const algorithms = bytes.length === 0 ? 0 : all.length / bytes.length;
  const row = (index) => all.subarray(index * bytes.length, (index + 1) * bytes.length);
  return Array.from({ length: algorithms }, (_, index) => row(index));
}

export function selection(collective, ranks, bytes) {
  return wasm.drawSelection(collective, ranks, bytes);
}
