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
  case "an operation that ends later": {
    const x = Float32Array.of(1);
    zero.allreduce(x).then(() => console.log("ended"));
    setTimeout(() => one.allreduce(Float32Array.of(1)), 50);
    break;
  }
  default:
    process.exit(1);
}
