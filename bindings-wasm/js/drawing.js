// Schedules, their timelines and their prices, for pages that draw them. Knows nothing of groups.

import "./load.js";
import * as module from "./wasm/polyrank.js";

export function collectives() {
  return JSON.parse(module.drawCollectives());
}

export function schedule(collective, algorithm, ranks, root, bytes) {
  return JSON.parse(module.drawSchedule(collective, algorithm, ranks, root, bytes));
}

export function prices(collective, ranks, bytes) {
  const all = module.drawPrices(collective, ranks, bytes);
  const algorithms = bytes.length === 0 ? 0 : all.length / bytes.length;
  const row = (index) => all.subarray(index * bytes.length, (index + 1) * bytes.length);
  return Array.from({ length: algorithms }, (_, index) => row(index));
}

export function selection(collective, ranks, bytes) {
  return module.drawSelection(collective, ranks, bytes);
}
