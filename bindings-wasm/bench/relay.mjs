// Two tabs that exchange tensors through the relay of a store's server: this package beside plain
// JavaScript over the same relay. `node bench/relay.mjs`, after `cargo xtask wasm` and
// `cargo build --release -p polyrank`. Prints medians; the ratio is what counts.

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { startStore } from "../tests/store.mjs";
import { openPage } from "./page.mjs";
import { HEAD, SIZES, line } from "./timed.js";

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

/** Runs in a page. */
async function measure({ bytes }) {
  const { timed } = await import("/bindings-wasm/bench/timed.js");
  return timed(globalThis.exchanges, bytes);
}

const [server, store, browser] = await Promise.all([serve(), startStore(), launchChromium()]);
try {
  const pages = await Promise.all([0, 1].map(async (rank) => {
    return { page: await openPage(browser, server.origin), rank };
  }));
  const onBoth = (act, told) => {
    return Promise.all(pages.map(({ page, rank }) => page.evaluate(act, { ...told, rank })));
  };
  await onBoth(prepare, { url: store.url });
  console.log(`${HEAD}  allreduce ms`);
  for (const bytes of SIZES) {
    const [one, other] = await onBoth(measure, { bytes });
    const both = Object.entries(one).map(([kind, times]) => [kind, [...times, ...other[kind]]]);
    console.log(line(bytes, Object.fromEntries(both)));
  }
} finally {
  await browser.close();
  store.stop();
  server.close();
}
