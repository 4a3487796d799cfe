// A rank of `completion.py` in Node: when it issues operations, and when it hears of their end.
//
//   node completion.mjs PATH_OF_POLYRANK RANK SIZE PORT

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [path, ...numbers] = process.argv.slice(2);
const [rank, size, port] = numbers.map(Number);
const pr = await import(pathToFileURL(path));

const options = { isMaster: rank === 0, waitForWorkers: false };
const store = await pr.TCPStore.connect("127.0.0.1", port, options);
const group = await pr.ProcessGroup.join(store, rank, size);

/** Holds the thread, as a computation would. */
function pause(microseconds) {
  if (microseconds === 0) return;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  Atomics.wait(cell, 0, 0, microseconds / 1000);
}

async function issueAndAwait(calls, late, which) {
  const small = new Float32Array(1);
  const times = [];
  for (let call = 0; call < calls; call += 1) {
    if (rank === (which >= 0 ? which : call % size)) pause(late);
    small[0] = 1;
    times.push(process.hrtime.bigint());
    await group.allreduce(small);
    times.push(process.hrtime.bigint());
    if (small[0] !== size) throw new Error(`the sum is ${small[0]}, not ${size}`);
  }
  return times;
}

async function sleepForASecond() {
  await new Promise((resolve) => setTimeout(resolve, 1000));
  return [];
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [way, ...words] = line.split(" ");
  await group.barrier();
  const [cpu, start] = [process.cpuUsage(), process.hrtime.bigint()];
  const run = way === "idle" ? sleepForASecond : issueAndAwait;
  const times = await run(...words.map(Number));
  const { user, system } = process.cpuUsage(cpu);
  const wall = Number(process.hrtime.bigint() - start) / 1e9;
  await group.barrier();
  console.log([(user + system) / 1e6, wall, ...times].join(" "));
}
await group.shutdown();
