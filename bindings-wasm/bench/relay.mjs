// Two tabs that exchange tensors through the relay of a store's server: this package beside plain
// JavaScript over the same relay. `node bench/relay.mjs`, after `cargo xtask wasm` and
// `cargo build --release -p polyrank`. Prints medians; the ratio is what counts.

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { startStore } from "../tests/store.mjs";

const SIZES = [64, 64 << 10, 1 << 20, 4 << 20];
const ROUNDS = 15;

/** Runs in a page: joins, and leaves what is timed behind. */
async function prepare({ url, rank }) {
  const pr = await import("/bindings-wasm/js/index.js");
  const { RawPipe } = await import("/bindings-wasm/bench/raw.js");
  const group = await pr.initProcessGroup("websocket", `${url}/?rank=${rank}&world_size=2`);
  const raw = new RawPipe(url);
  await raw.ready;
  const numbers = [null, null];
  await pr.allGatherObject(numbers, Number(raw.number));
  await group.barrier();
  raw.connect(BigInt(numbers[1 - rank]));
  const peer = 1 - rank;
  globalThis.exchanges = {
    raw: (mine, theirs) => raw.exchange(mine, theirs),
    messages: (mine, theirs) => {
      return Promise.all([group.recv([theirs], peer), group.send([mine], peer)]);
    },
    allreduce: (mine) => group.allreduce(mine),
  };
}

/** Runs in a page: the times of so many exchanges of each kind, ms; the kinds take turns. */
async function measure({ bytes, rounds }) {
  const [mine, theirs] = [new Uint8Array(bytes).fill(1), new Uint8Array(bytes)];
  const times = { raw: [], messages: [], allreduce: [] };
  for (let round = 0; round < rounds + 3; round += 1) {
    for (const [kind, list] of Object.entries(times)) {
      const began = performance.now();
      await globalThis.exchanges[kind](mine, theirs);
      if (round >= 3) list.push(performance.now() - began);
    }
  }
  return times;
}

function median(times) {
  return times.toSorted((a, b) => a - b)[times.length >> 1];
}

const [server, store, browser] = await Promise.all([serve(), startStore(), launchChromium()]);
try {
  const pages = await Promise.all([0, 1].map(async (rank) => {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(error.stack));
    await page.goto(server.origin);
    return { page, rank };
  }));
  const onBoth = (act, told) => {
    return Promise.all(pages.map(({ page, rank }) => page.evaluate(act, { ...told, rank })));
  };
  await onBoth(prepare, { url: store.url });
  console.log("bytes     raw ms  messages ms  ratio  allreduce ms");
  for (const bytes of SIZES) {
    const times = await onBoth(measure, { bytes, rounds: ROUNDS });
    const of = (kind) => median(times.flatMap((its) => its[kind]));
    const [raw, messages, allreduce] = ["raw", "messages", "allreduce"].map(of);
    const columns = [raw, messages, messages / raw, allreduce];
    const padded = columns.map((it) => it.toFixed(2).padStart(10));
    console.log(String(bytes).padEnd(9), padded.join(" "));
  }
} finally {
  await browser.close();
  store.stop();
  server.close();
}
