// Workers as ranks of one group, in one process.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import * as pr from "polyrank";

test("three Workers and the main thread are four ranks", async () => {
  const options = { isMaster: true, waitForWorkers: false };
  const store = await pr.TCPStore.connect("127.0.0.1", 0, options);
  const program = new URL("./scenarios/workers-worker.js", import.meta.url);
  const workers = [1, 2, 3].map((rank) => {
    return new Worker(program, { workerData: { port: store.port, rank, size: 4 } });
  });
  const answers = workers.map((worker) => once(worker, "message"));
  const ends = workers.map((worker) => once(worker, "exit"));
  const group = await pr.ProcessGroup.join(store, 0, 4);
  const x = Float32Array.of(0);
  await group.allreduce(x);
  const large = new Float64Array(1 << 20);
  await group.allreduce(large);
  await group.shutdown();
  assert.deepEqual([x[0], large[0], large.at(-1)], [6, 6, 6]);
  for (const [answer] of await Promise.all(answers)) assert.deepEqual(answer, [6, 6, 6]);
  for (const [code] of await Promise.all(ends)) assert.equal(code, 0);
});
