// The package under Node, with the WebSocket of the package `ws` in the place of a browser's.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";

import WebSocket from "ws";

import { local } from "./cases/local.mjs";
import { memory } from "./cases/memory.mjs";
import { values } from "./cases/values.mjs";

globalThis.WebSocket ??= WebSocket;
const pr = await import("../js/index.js");
const { native } = await import("../js/runtime/native.js");
const { MessagePortStore } = await import("../js/workers.js");

/** A program that leaves a group over a backend of its own open when all operations are over. */
const OPEN = `
  import * as pr from ${JSON.stringify(new URL("../js/index.js", import.meta.url).href)};
  pr.registerBackend("mine", () => ({ allreduce() {} }));
  const options = { backend: "mine", timeout: 3_600_000 };
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, options);
  for (let call = 0; call < 3; call += 1) await group.allreduce(new Float32Array(1));
`;

test("what a backend has ended keeps no process waiting for its deadline", async () => {
  const words = ["--input-type=module", "-e", OPEN];
  await promisify(execFile)(process.execPath, words, { timeout: 60_000 });
});

test("ranks in threads, one of which is terminated", { timeout: 60_000 }, async () => {
  const store = new MessagePortStore();
  const threads = [0, 1].map((rank) => {
    const port = store.openPort();
    const workerData = { port, rank, size: 2 };
    return new Worker(new URL("thread_rank.mjs", import.meta.url), {
      workerData,
      transferList: [port],
    });
  });
  const sums = await Promise.all(threads.map((thread) => once(thread, "message")));
  assert.deepEqual(sums.flat(), [3, 3]);
  const [first, second] = threads;
  await second.terminate();
  first.postMessage("again");
  assert.deepEqual(await once(first, "message"), [{ kind: "RankFailed", rank: 1 }]);
});

for (const [name, run] of Object.entries({ ...local, ...memory, ...values })) {
  test(name, () => run(pr, native));
}
