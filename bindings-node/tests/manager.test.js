// `Manager` and `LighthouseServer`: replicas of processes, which are killed and come back, beside
// one of Python.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { join } from "node:path";
import test from "node:test";

import * as pr from "polyrank";

const PROGRAM = join(import.meta.dirname, "scenarios", "replica.js");

/** A lighthouse for the time of a test. */
async function lighthouse(context, minReplicas) {
  const made = await pr.LighthouseServer.start(minReplicas, { bind: "127.0.0.1:0" });
  context.after(() => made.shutdown());
  return made.address();
}

/** A manager of a replica of one rank. */
function manager(address, options = {}) {
  const { minReplicas = 1, ...others } = options;
  const usual = { lighthouseAddr: address, rank: 0, worldSize: 1, timeout: 20_000 };
  return pr.Manager.start(minReplicas, { ...usual, ...others });
}

/** A replica that is a process: what it says of each step, in order. */
class Replica {
  steps = [];

  constructor(address, name, steps, mode = "") {
    const words = [PROGRAM, address, name, String(steps), mode];
    this.process = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
    this.ended = once(this.process, "close");
    this.#waiting = [];
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      this.steps.push(JSON.parse(line));
      this.#waiting = this.#waiting.filter(({ until, resolve }) => !until() || resolve());
    });
  }

  #waiting;

  /** Waits until it has committed so many steps. */
  committed(step) {
    const until = () => this.steps.some((it) => it.committed && it.step >= step);
    return until() ? Promise.resolve() : new Promise((resolve) => {
      this.#waiting.push({ until, resolve });
    });
  }

  /** What its parameters were after each step that was committed. */
  get committedStates() {
    const all = this.steps.filter((it) => it.committed);
    return new Map(all.map(({ step, weights }) => [step, weights]));
  }
}

for (const size of [1, 2, 3]) {
  test(`${size} replicas have the same parameters after every step`, async (context) => {
    const address = await lighthouse(context, size);
    const names = Array.from({ length: size }, (_, index) => `replica-${index}`);
    const replicas = names.map((name) => new Replica(address, name, 6));
    await Promise.all(replicas.map((replica) => replica.ended));
    const [first, ...others] = replicas.map((replica) => replica.committedStates);
    assert.equal(first.size, 6);
    // All begin with the state of one, and each step adds the average of step + 1.
    const start = first.get(1)[0] - 1;
    for (const [step, weights] of first) {
      assert.deepEqual(weights, new Array(5).fill(start + (step * (step + 1)) / 2));
    }
    for (const other of others) assert.deepEqual(other, first);
  });
}

test("a replica that is killed comes back with the state of the others", async (context) => {
  const address = await lighthouse(context, 1);
  const steady = new Replica(address, "steady", 40, "slow");
  // It is never behind the other one, and so commits every step itself.
  await steady.committed(1);
  const victim = new Replica(address, "victim", 40, "slow");
  await victim.committed(3);
  victim.process.kill("SIGKILL");
  await victim.ended;
  const again = new Replica(address, "victim", 40, "slow");
  await Promise.all([steady.ended, again.ended]);
  const [one, two] = [steady.committedStates, again.committedStates];
  assert.equal(one.size, 40);
  assert.ok(two.size > 0 && again.steps.some((it) => it.loaded));
  for (const [step, weights] of two) assert.deepEqual(weights, one.get(step), `step ${step}`);
});

test("what waits for the quorum is called without waiting for it", async (context) => {
  const address = await lighthouse(context, 2);
  const [one, two] = await Promise.all([manager(address), manager(address)]);
  context.after(() => Promise.all([one.shutdown(), two.shutdown()]));
  await one.startQuorum();
  // The lighthouse waits for the second replica: the event loop must not.
  const [tensor, pair] = [Float64Array.of(1), [Float32Array.of(2), Int32Array.of(3, 4)]];
  const works = [one.allreduce(tensor, pr.ReduceOp.SUM)];
  works.push(one.allreduceCoalesced(pair, { reduceOp: pr.ReduceOp.MAX }));
  await two.startQuorum();
  const others = [Float64Array.of(5), [Float32Array.of(7), Int32Array.of(1, 9)]];
  works.push(two.allreduce(others[0], { reduceOp: pr.ReduceOp.SUM }));
  works.push(two.allreduceCoalesced(others[1], pr.ReduceOp.MAX));
  await Promise.all(works);
  assert.deepEqual(await Promise.all([one.shouldCommit(), two.shouldCommit()]), [true, true]);
  // In the first step only one of them contributes.
  assert.deepEqual(others, [tensor, pair]);
  assert.equal(await one.numParticipants(), 2);
  assert.deepEqual(await one.replicas(), await two.replicas());
  assert.deepEqual(one.stateDict(), { step: 1, batchesCommitted: 2 });
});

test("states may be promised, and what their functions throw loses the step", async (context) => {
  const address = await lighthouse(context, 2);
  const [one, two] = await Promise.all([manager(address), manager(address)]);
  context.after(() => Promise.all([one.shutdown(), two.shutdown()]));
  let loaded = null;
  let isBroken = true;
  const states = new Map([[one, { of: "one" }], [two, { of: "two" }]]);
  for (const [each, state] of states) {
    each.registerStateDictFn("model", async (given) => {
      await new Promise((resolve) => setImmediate(resolve));
      if (isBroken) throw new Error("no room for it");
      loaded = given;
    }, async () => state);
  }
  const step = async () => {
    await Promise.all([one.startQuorum(), two.startQuorum()]);
    return Promise.all([one.shouldCommit(), two.shouldCommit()]);
  };
  const lost = (await step()).indexOf(false);
  assert.notEqual(lost, -1);
  assert.match([one, two][lost].errored(), /no room for it/);
  isBroken = false;
  await step();
  assert.equal(loaded.of, ["two", "one"][lost]);
});

test("a state of the program's own bytes", async (context) => {
  const address = await lighthouse(context, 1);
  const one = await manager(address);
  context.after(() => one.shutdown());
  one.registerStateStore("bytes", new pr.HashStore());
  assert.throws(() => one.registerStateStore("bytes", new pr.HashStore()), pr.InvalidArgumentError);
});

test("what is wrong says what was expected", async (context) => {
  const address = await lighthouse(context, 1);
  await assert.rejects(manager(address, { minReplicas: 0 }), {
    name: "InvalidArgumentError",
    message: /minReplicaSize must be more than 0/,
  });
  await assert.rejects(manager(address, { rank: 3 }), /groupRank is 3/);
  await assert.rejects(manager("http://127.0.0.1:1", { connectTimeout: 200 }), {
    name: "ManagerFailedError",
  });
  const lighthouseAt = (bind) => pr.LighthouseServer.start(1, { bind });
  await assert.rejects(lighthouseAt("nowhere.invalid:0"), /nowhere\.invalid/);
  await assert.rejects(lighthouseAt("0.0.0.0:0"), /without a token/);
  const taken = address.slice("http://".length);
  await assert.rejects(lighthouseAt(taken), { name: "DistNetworkError" });
  const one = await manager(address);
  context.after(() => one.shutdown());
  await assert.rejects(one.shouldCommit(), /call startQuorum before shouldCommit/);
  const register = (...given) => () => one.registerStateDictFn(...given);
  assert.throws(register("model", 3, () => 1), /'loadStateDict' must be a function/);
  assert.throws(register(7, () => 1, () => 1), /'key' must be a string, not/);
  await one.startQuorum();
  assert.throws(() => one.allreduce(Int32Array.of(1)), /average of i32/);
  assert.equal(await one.shouldCommit(), false);
  assert.match(one.errored(), /average of i32/);
});

test("a quorum that does not come in time is an error that the loop repeats", async (context) => {
  const address = await lighthouse(context, 2);
  const one = await manager(address, { quorumTimeout: 300, useAsyncQuorum: false });
  await assert.rejects(one.startQuorum(), (error) => {
    return error instanceof pr.QuorumError && /waits for 1 more replica/.test(error.message);
  });
  const two = await manager(address, { useAsyncQuorum: false });
  context.after(() => Promise.all([one.shutdown(), two.shutdown()]));
  await Promise.all([one.startQuorum({ timeout: 20_000 }), two.startQuorum()]);
  assert.equal(await one.isParticipating(), true);
  one.reportError("a sensor fell off");
  assert.equal(await one.shouldCommit(), false);
  assert.match(one.errored(), /a sensor fell off/);
});

test("a manager goes on from a checkpoint", async (context) => {
  const address = await lighthouse(context, 1);
  const one = await manager(address, { initSync: false, replicaId: "checkpointed" });
  context.after(() => one.shutdown());
  await one.loadStateDict({ step: 7, batchesCommitted: 14 });
  assert.equal(one.currentStep(), 7);
  await one.startQuorum();
  await one.waitQuorum();
  assert.equal(await one.participatingRank(), 0);
  assert.equal(await one.shouldCommit(), true);
  assert.deepEqual([one.currentStep(), one.batchesCommitted()], [8, 15]);
  assert.match(one.replicaId(), /^checkpointed/);
  assert.equal(one.group().size(), 1);
  assert.match(String(one), /Manager/);
});
