// A Worker as a rank: rank 0 begins an operation and is terminated; rank 1 comes to another one
// then, and tells what that ended with.

import { parentPort, workerData } from "node:worker_threads";

import * as pr from "polyrank";

const { port, round, rank, kind } = workerData;
const store = await pr.TCPStore.connect("127.0.0.1", port, { waitForWorkers: false });
const group = await pr.ProcessGroup.join(store, rank, 2, { groupName: `workers ${round}` });

const make = {
  staged: () => new Float32Array(1 << 20).fill(1),
  owned: () => pr.alloc("f32", [1 << 20]),
}[kind];

if (rank === 0) {
  const works = Array.from({ length: 3 }, () => group.allreduce(make()));
  setImmediate(() => parentPort.postMessage(["begun"]));
  await Promise.all(works);
} else {
  // It never receives what rank 0 sends in this order: it waits for it to say something else.
  try {
    await group.recv([new Float32Array(1)], 0);
    parentPort.postMessage(["ended", "well"]);
  } catch (error) {
    parentPort.postMessage(["ended", error.kind]);
  }
}
