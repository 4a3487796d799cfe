// A Worker as a rank of a group.

import { parentPort, workerData } from "node:worker_threads";

import * as pr from "polyrank";

const { port, rank, size } = workerData;
const store = await pr.TCPStore.connect("127.0.0.1", port, { waitForWorkers: false });
const group = await pr.ProcessGroup.join(store, rank, size);
const x = Float32Array.of(rank);
await group.allreduce(x);
const large = new Float64Array(1 << 20).fill(rank);
await group.allreduce(large);
await group.shutdown();
parentPort.postMessage([x[0], large[0], large.at(-1)]);
