// A replica that learns the digits together with others that come and go: the Node replicas of
// `cargo xtask churn`.
//
// learner.py is the same program in Python, tests/examples/learner.rs in Rust. Its arguments are
// the lighthouse, its name, its number, how many milliseconds a step takes at least, and after how
// many steps it ends. It prints a line of JSON for each step. Its input has lines as well: `slow
// 100` adds so many milliseconds to its steps, and after `stop` all end together.

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { HashStore, Manager, QuorumError, ReduceOp } from "../../bindings-node/js/index.js";
import { fingerprint, gradient, read } from "./digits.mjs";

const BATCH = 64;
const LEARNING_RATE = Math.fround(0.1);
/** Replicas whose images differ. */
const NUMBERS = 6;
/** How long an operation, and a quorum, are waited for, ms. */
const [TIMEOUT, QUORUM_TIMEOUT] = [3_000, 6_000];

const say = (found) => process.stdout.write(`${JSON.stringify(found)}\n`);

const [lighthouseAddr, replicaId, number, pace, steps] = process.argv.slice(2);
const text = await readFile(new URL("../data/digits.csv", import.meta.url), "utf8");
const [images] = read(text);
const orders = { isOver: false, slow: 0 };
const input = createInterface({ input: process.stdin });
input.on("line", (line) => {
  if (line.startsWith("slow ")) orders.slow = Number(line.split(" ")[1]);
  if (line === "stop") orders.isOver = true;
});

// What another replica gives comes into the store, and what is in it is given to others.
const state = new HashStore();
const weights = async () => new Float32Array((await state.get("weights")).slice().buffer);
await state.set("weights", new Uint8Array(new Float32Array(65 * 10).buffer));
const manager = await Manager.start(1, {
  lighthouseAddr,
  replicaId,
  rank: 0,
  worldSize: 1,
  timeout: TIMEOUT,
  quorumTimeout: QUORUM_TIMEOUT,
});
manager.registerStateStore("weights", state);
say({ started: manager.replicaId() });

let isOver = false;
while (!isOver) {
  const began = manager.currentStep();
  const over = new Int32Array(1);
  // How many of those that participate have given something: some may take a state.
  const share = Float64Array.of(1);
  let slope;
  let isCommitted;
  try {
    await manager.startQuorum();
    const first = (began * NUMBERS + Number(number)) * BATCH;
    const mine = Array.from({ length: BATCH }, (_, at) => images[(first + at) % images.length]);
    slope = gradient(await weights(), mine).subarray(0, -1).map((sum) => sum / BATCH);
    await sleep(Number(pace) + orders.slow);
    over[0] = orders.isOver || began + 1 >= Number(steps) ? 1 : 0;
    const works = [manager.allreduce(slope), manager.allreduce(over, ReduceOp.MAX)];
    await Promise.all([...works, manager.allreduce(share)]);
    isCommitted = await manager.shouldCommit();
  } catch (error) {
    if (!(error instanceof QuorumError)) throw error;
    say({ lost: began, why: error.message });
    continue;
  }
  if (isCommitted) {
    // Single operations of IEEE 754 on binary32, each rounded: every language has the same.
    const before = await weights();
    const after = before.map((weight, at) => weight - Math.fround(LEARNING_RATE * slope[at]));
    await state.set("weights", new Uint8Array(after.buffer));
    isOver = over[0] === 1;
    const participants = await manager.numParticipants();
    const step = manager.currentStep();
    const batches = manager.batchesCommitted();
    const gives = await manager.isParticipating();
    const gave = Number((share[0] * participants).toFixed(6));
    const members = (await manager.replicas()).length;
    const who = { members, of: participants, gives, gave };
    say({ step, since: began, ...who, batches, hash: fingerprint(after) });
  } else {
    say({ lost: manager.currentStep(), why: manager.errored() });
  }
}
const loss = gradient(await weights(), images).at(-1) / images.length;
say({ end: manager.currentStep(), loss });
await manager.shutdown();
input.close();
