// Groups that do more than a group: `ErrorSwallowingProcessGroupWrapper`, `ManagedProcessGroup`,
// `ProcessGroupDummy` and `ProcessGroupWrapper`.

import assert from "node:assert/strict";
import test from "node:test";

import * as pr from "polyrank";
import { inGroups } from "./support/groups.js";

/** Every kind of operation, of which none raises. What a dummy sends to itself does not come. */
async function allOperations(group, isRun) {
  const isSent = isRun && !(group instanceof pr.ProcessGroupDummy);
  const [rank, size] = [group.rank(), group.size()];
  for (const count of [0, 1, 1001, 70_001]) {
    const sum = new Float64Array(count).fill(1);
    await group.allreduce([sum]);
    assert.ok(sum.every((it) => it === (isRun ? size : 1)));
    const parts = Array.from({ length: size }, () => new Int32Array(count).fill(-1));
    await group.allgather([parts], [new Int32Array(count).fill(rank)]);
    parts.forEach((part, from) => assert.ok(part.every((it) => it === (isRun ? from : -1))));
    const copy = new Uint8Array(count).fill(rank);
    await group.broadcast(copy, 0);
    assert.ok(copy.every((it) => it === (isRun ? 0 : rank)));
    const came = new Float32Array(count).fill(-1);
    const [to, from] = [(rank + 1) % size, (rank + size - 1) % size];
    const sent = group.send([new Float32Array(count).fill(rank)], to, 3);
    await Promise.all([sent, group.recv([came], from, 3)]);
    assert.ok(came.every((it) => it === (isSent ? from : -1)));
    await pr.allReduce(sum, { group });
  }
  await group.barrier();
}

for (const size of [1, 2, 3, 5]) {
  test(`errors of a group of ${size} are kept, and operations after them end well`, async () => {
    const store = new pr.HashStore();
    const run = async (_, rank) => {
      const group = await pr.ProcessGroup.join(store, rank, size);
      const training = new pr.ErrorSwallowingProcessGroupWrapper(group);
      assert.ok(training instanceof pr.ProcessGroup);
      assert.equal(training.parent, group);
      await allOperations(training, true);
      assert.equal(training.error(), null);
      const pending = rank === 0 ? Promise.resolve() : training.allreduce([Int8Array.of(1)]);
      if (rank === 0) group.abort();
      await pending;
      await training.barrier();
      assert.match(training.error(), /abort\(\)/);
      await allOperations(training, false);
      await assert.rejects(async () => group.allreduce([Int8Array.of(1)]), pr.AbortedError);
      const toNobody = async () => training.send([Int8Array.of(1)], size);
      await assert.rejects(toNobody, pr.InvalidArgumentError);
      training.reportError("later");
      assert.match(training.error(), /abort\(\)/);
    };
    await Promise.all(Array.from({ length: size }, run));
  });
}

test("what the program reports is an error of this handle alone", async () => {
  await inGroups(2, async (group) => {
    const training = new pr.ErrorSwallowingProcessGroupWrapper(group);
    training.reportError("the sensor is gone");
    const tensor = Float32Array.of(1);
    const work = training.allreduce([tensor]);
    await work;
    assert.deepEqual([tensor[0], work.isSuccess()], [1, true]);
    assert.equal(training.error(), "the sensor is gone");
    await group.allreduce([tensor]);
    assert.equal(tensor[0], 2);
    const outer = new pr.ProcessGroupWrapper(training);
    assert.equal(outer.parent, training);
    await outer.allreduce([tensor]);
    assert.equal(tensor[0], 2);
  });
});

test("a group without other ranks", async () => {
  const dummy = new pr.ProcessGroupDummy();
  await allOperations(dummy, true);
  await dummy.configure("nowhere:1/quorum", 2, 5);
  assert.deepEqual([dummy.configureCount, dummy.rank(), dummy.size()], [1, 0, 1]);
  assert.throws(() => new pr.ProcessGroupDummy({ rank: 2, world: 2 }), pr.InvalidArgumentError);
  assert.throws(() => new pr.ErrorSwallowingProcessGroupWrapper(5), pr.InvalidTypeError);
});

test("the group of a manager", async (context) => {
  const lighthouse = await pr.LighthouseServer.start(1, { bind: "127.0.0.1:0" });
  context.after(() => lighthouse.shutdown());
  const manager = await pr.Manager.start(1, {
    lighthouseAddr: lighthouse.address(), rank: 0, worldSize: 1, timeout: 20_000,
  });
  context.after(() => manager.shutdown());
  const managed = new pr.ManagedProcessGroup(manager);
  assert.equal(managed.parent, manager.group());
  await manager.startQuorum();
  const tensor = Float64Array.of(3, 4);
  await managed.allreduce([tensor], { reduceOp: pr.ReduceOp.AVG });
  await managed.broadcast(tensor, 0);
  assert.deepEqual([...tensor], [3, 4]);
  assert.equal(managed.error(), null);
  assert.equal(await manager.shouldCommit(), true);
  await manager.startQuorum();
  await manager.waitQuorum();
  manager.group().abort();
  await managed.broadcast(tensor, 0);
  assert.match(managed.error(), /abort\(\)/);
  await managed.allreduce([tensor]);
  assert.equal(await manager.shouldCommit(), false);
});
