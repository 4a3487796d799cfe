// A rank in a thread of Node: reduces once when it has joined, and once more when it is told so.
// Tells the sum, and then the error.

import { parentPort, workerData } from "node:worker_threads";

import * as pr from "../js/index.js";
import { MessagePortStore } from "../js/workers.js";

const { port, rank, size } = workerData;
const store = await MessagePortStore.connect(port);
const group = await pr.initProcessGroup({ store, rank, worldSize: size });
const sum = Float32Array.of(rank + 1);
await group.allreduce(sum);
parentPort.once("message", async () => {
  const error = await group.allreduce(sum).catch((error) => error);
  parentPort.postMessage({ kind: error.kind, rank: error.rank });
  process.exit();
});
parentPort.postMessage(sum[0]);
