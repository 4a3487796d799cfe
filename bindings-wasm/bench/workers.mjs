// Two Workers of one page that reduce a tensor, over ports and through shared memory: what an
// awaited allreduce takes. `node bench/workers.mjs`, after `cargo xtask wasm`. Prints medians and
// ninetieth percentiles, µs, and the processor.

import { cpus, loadavg } from "node:os";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { openPage } from "./page.mjs";

const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

/** Bytes of the tensors, and how often they are reduced. */
const SIZES = { 4: 20_000, 1024: 10_000, [64 << 10]: 2000, [1 << 20]: 300 };

/** Runs in the page. */
async function prepare() {
  const { Ranks } = await import("/bindings-wasm/tests/worker_ranks.mjs");
  globalThis.ranks = new Ranks(2);
  // Browsers compile what runs often, after a while.
  await ranks.run(`async ({ group }) => {
    const value = Float32Array.of(0);
    for (let round = 0; round < 20_000; round += 1) await group.allreduce(value);
  }`);
}

/** Runs in the page. */
function measure({ bytes, rounds }) {
  // Clocks of pages are coarse: many rounds are timed together.
  return ranks.run(`async ({ group }) => {
    const tensor = new Float32Array(${bytes} / 4);
    const batch = Math.max(1, Math.floor(${rounds} / 100));
    const times = [];
    for (let at = 0; at < 120; at += 1) {
      const began = performance.now();
      for (let round = 0; round < batch; round += 1) await group.allreduce(tensor);
      if (at >= 20) times.push((1000 * (performance.now() - began)) / batch);
    }
    return times;
  }`);
}

const browser = await launchChromium();
console.log(`${cpus()[0].model}, ${cpus().length} processors, load ${loadavg()[0].toFixed(2)}`);
console.log("way            bytes      median µs    90 % µs");
for (const [way, headers] of Object.entries({ ports: {}, "shared memory": ISOLATED })) {
  const server = await serve(new Map(), undefined, headers);
  const page = await openPage(browser, server.origin);
  await page.evaluate(prepare);
  for (const [bytes, rounds] of Object.entries(SIZES)) {
    const times = (await page.evaluate(measure, { bytes: Number(bytes), rounds })).flat();
    const sorted = times.sort((a, b) => a - b);
    const shown = [0.5, 0.9].map((part) => sorted[Math.floor(part * sorted.length)].toFixed(1));
    console.log([way.padEnd(14), bytes.padEnd(10), ...shown.map((it) => it.padStart(9))].join(" "));
  }
  server.close();
}
await browser.close();
