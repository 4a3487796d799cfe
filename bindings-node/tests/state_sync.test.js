// `syncState`: tensors that are made the same on all ranks.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";

const inGroups = async (size, run) => {
  const store = new pr.HashStore();
  const ranks = Array.from({ length: size }, async (_, rank) => {
    const group = await pr.ProcessGroup.join(store, rank, size);
    await run(group, rank);
    await group.shutdown();
  });
  await Promise.all(ranks);
};

for (const size of [1, 2, 3, 5, 8]) {
  test(`what most of ${size} ranks have becomes what all have`, async () => {
    await inGroups(size, async (group, rank) => {
      const number = rank === size - 1 && size > 1 ? 9 : 4;
      const floats = Float32Array.from({ length: 100_003 }, (_, at) => (at % 97) + number);
      const [one, none] = [BigInt64Array.of(BigInt(number)), new Uint8Array(0)];
      const work = group.syncState([floats, one, none]);
      await work;
      assert.ok(floats.every((value, at) => value === (at % 97) + 4));
      assert.deepEqual([one, none], [BigInt64Array.of(4n), new Uint8Array(0)]);
      assert.equal(work.result()[0], floats);
    });
  });
}

test("elements that lie apart, and collectives meanwhile", async () => {
  await inGroups(3, async (group, rank) => {
    const data = new Float64Array(12).fill(rank === 1 ? 5 : 2);
    const columns = pr.tensor(data, { shape: [3, 2], strides: [4, 2] });
    const sum = Int32Array.of(1);
    // In one order here, and in the other there.
    const begin = [() => group.syncState([columns]), () => group.allreduce([sum])];
    if (rank === 2) begin.reverse();
    await Promise.all(begin.map((start) => start()));
    const own = rank === 1 ? 5 : 2;
    assert.deepEqual([...data], [2, own, 2, own, 2, own, 2, own, 2, own, 2, own]);
    assert.deepEqual(sum, Int32Array.of(3));
  });
});

test("other tensors are said with their rank", async () => {
  await inGroups(2, async (group, rank) => {
    const tensors = Array.from({ length: rank + 1 }, () => new Float32Array(3));
    await assert.rejects(async () => group.syncState(tensors), {
      name: "CollectiveMismatchError",
      message: /syncState.*2 tensors/s,
    });
    assert.throws(() => group.syncState([1]), pr.InvalidTypeError);
    await group.barrier();
  });
});
