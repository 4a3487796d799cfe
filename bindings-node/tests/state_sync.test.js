// `syncState`: tensors that are made the same on all ranks.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";
import { inGroups } from "./support/groups.js";

for (const size of [1, 2, 3, 5, 8]) {
  test(`what most of ${size} ranks have becomes what all have`, async () => {
    await inGroups(size, async (group, rank) => {
      const isOther = rank === size - 1 && size > 1;
      const number = isOther ? 9 : 4;
      const floats = Float32Array.from({ length: 100_003 }, (_, at) => (at % 97) + number);
      const [one, none] = [BigInt64Array.of(BigInt(number)), new Uint8Array(0)];
      const owned = pr.alloc("f64", [3]);
      owned.data.fill(number);
      const replaced = await group.syncState([floats, none, one, owned]);
      assert.deepEqual(replaced, isOther ? [0, 2, 3] : []);
      assert.ok(floats.every((value, at) => value === (at % 97) + 4));
      assert.deepEqual([one, none], [BigInt64Array.of(4n), new Uint8Array(0)]);
      assert.deepEqual([...owned.data], [4, 4, 4]);
    });
  });
}

test("newcomers who are alike do not outvote who has trained", async () => {
  await inGroups(3, async (group, rank) => {
    const own = Float32Array.of(rank === 1 ? 5 : 0);
    const replaced = await group.syncState([own], { revision: rank === 1 ? 3 : -1 });
    assert.deepEqual([replaced, own[0]], [rank === 1 ? [] : [0], 5]);
  });
});

test("elements that lie apart, in the order of collectives", async () => {
  await inGroups(3, async (group, rank) => {
    const data = new Float64Array(12).fill(rank === 1 ? 5 : 2);
    const columns = pr.tensor(data, { shape: [3, 2], strides: [4, 2] });
    const sum = Int32Array.of(1);
    const begun = [group.syncState([columns]), group.allreduce([sum])];
    // What lies between the elements is not of the tensor, and changes meanwhile.
    data[1] = 7;
    await Promise.all(begun);
    const own = rank === 1 ? 5 : 2;
    assert.deepEqual([...data], [2, 7, 2, own, 2, own, 2, own, 2, own, 2, own]);
    assert.deepEqual(sum, Int32Array.of(3));
  });
});

test("who transfers a buffer meanwhile keeps the other tensors", async () => {
  await inGroups(2, async (group, rank) => {
    const [first, second] = [new Float32Array(3).fill(rank), Int8Array.of(rank)];
    const begun = group.syncState([first, second]);
    if (rank === 0) return begun;
    structuredClone(first.buffer, { transfer: [first.buffer] });
    await assert.rejects(begun, /tensor 0 was replaced, and its memory is gone/);
    assert.deepEqual(second, Int8Array.of(0));
  });
});

test("other tensors are said with their rank", async () => {
  await inGroups(2, async (group, rank) => {
    const tensors = Array.from({ length: rank + 1 }, () => new Float32Array(3));
    await assert.rejects(group.syncState(tensors), {
      name: "InvalidArgumentError",
      message: /syncState: ranks disagree: rank [01] gives [12] tensors/,
    });
    await assert.rejects(group.syncState([1]), pr.InvalidTypeError);
    await assert.rejects(group.syncState(new Float32Array(3)), /'tensors' must be an array/);
    await group.barrier();
  });
});
