// Programs that end, each in its own way. Two ranks of one process, so that nobody else is needed.

import * as pr from "polyrank";

const store = new pr.HashStore();
const join = (rank) => pr.ProcessGroup.join(store, rank, 2, { timeout: 30_000 });
const [zero, one] = await Promise.all([join(0), join(1)]);
await Promise.all([zero.barrier(), one.barrier()]);

switch (process.argv[2]) {
  case "a group that nobody left":
    break;
  case "process.exit() with operations in flight":
    zero.allreduce(new Float32Array(1 << 20));
    store.get("never").catch(() => {});
    process.exit(7);
    break;
  case "a wait of a store that is given up": {
    const end = new AbortController();
    const waiting = store.get("never", { signal: end.signal }).catch((error) => error);
    end.abort(new Error("enough"));
    if ((await waiting).message !== "enough") process.exit(1);
    break;
  }
  case "an answer that is too long": {
    // Prefix and key are longer together than a text of JavaScript can be: 2^29 - 24.
    const half = "x".repeat(2 ** 28);
    const inner = new pr.HashStore();
    await new pr.PrefixStore(half, inner).set(half, "value");
    const others = () => Array.from({ length: 20 }, () => inner.numKeys());
    const before = others();
    const keys = inner.listKeys().catch((error) => `${error.kind}: ${error.message}`);
    console.log(await keys, new Set(await Promise.all([...before, ...others()])));
    break;
  }
  case "calls that throw": {
    Error.stackTraceLimit = 0;
    const { signal } = new AbortController();
    const fail = (times) => {
      for (let time = 0; time < times; time += 1) {
        try {
          store.get(time, { signal });
        } catch {
          continue;
        }
      }
      globalThis.gc();
      return process.memoryUsage.rss();
    };
    // What calls leave behind comes with each turn; what the collector has not given back yet does
    // not, and the first turn has most of it.
    const sizes = Array.from({ length: 5 }, () => fail(60_000));
    const grown = sizes.slice(1).map((size, turn) => size - sizes[turn]);
    console.log(Math.min(...grown) / 2 ** 20);
    break;
  }
  case "an operation that ends later": {
    const x = Float32Array.of(1);
    zero.allreduce(x).then(() => console.log("ended"));
    setTimeout(() => one.allreduce(Float32Array.of(1)), 50);
    break;
  }
  default:
    process.exit(1);
}
