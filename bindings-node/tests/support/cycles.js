// A rank that makes and leaves the default group again and again, and refers to every group that it
// had. Told on the command line: rank, world size, port of the store, how groups end, how many.

import { readdirSync } from "node:fs";

import * as pr from "polyrank";

const [rank, size, port, ending, count] = process.argv.slice(2);
const URL = `tcp://127.0.0.1:${port}?rank=${rank}&world_size=${size}`;
const CYCLES = Number(count);
/** Cycles after which everything is there that a process keeps. */
const WARM = 5;

const groups = [];
const open = () => readdirSync("/proc/self/fd").length;
let [before, most] = [0, 0];

for (let cycle = 0; cycle < CYCLES; cycle += 1) {
  await pr.initProcessGroup({ initMethod: URL, timeout: 60_000 });
  const group = pr.defaultGroup();
  const sum = Float64Array.of(1);
  await group.allreduce(sum);
  if (sum[0] !== Number(size)) throw new Error(`the sum is ${sum[0]}`);
  most = Math.max(most, open());
  await pr.destroyProcessGroup();
  if (pr.isInitialized()) throw new Error("a group that was left is the default group");
  if (ending === "referred to") groups.push(group);
  else if (cycle < 100) globalThis.gc();
  if (cycle === WARM) before = open();
}
// What a group had is closed when it was left; a system call may still hold what it waited for.
const begin = Date.now();
while (open() > before && Date.now() - begin < 20_000) {
  await new Promise((resolve) => setImmediate(resolve));
}
console.log(JSON.stringify({ before, after: open(), most, referred: groups.length }));
