// Sums of sparse tensors, against sums of numbers.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";
import { inGroups } from "./support/groups.js";

for (const size of [1, 2, 3, 5]) {
  test(`entries of ${size} ranks are summed by their places`, async () => {
    await inGroups(size, async (group, rank) => {
      // Rank r has r entries at 0, and one at its own place.
      const places = new BigInt64Array(rank + 1);
      places[rank] = BigInt(rank + 10);
      const ones = new Float32Array(rank + 1).fill(1);
      const [indices, values] = await group.allreduceSparse(places, ones);
      const own = Array.from({ length: size }, (_, other) => other + 10);
      const zeros = (size * (size - 1)) / 2;
      assert.deepEqual([...indices.data].map(Number), zeros > 0 ? [0, ...own] : own);
      assert.deepEqual([...values.data], zeros > 0 ? [zeros, ...own.map(() => 1)] : [1]);
      assert.deepEqual([indices.dtype, values.dtype], ["i64", "f32"]);
    });
  });
}

test("dimensions, blocks, strides and averages", async () => {
  await inGroups(2, async (group, rank) => {
    // Columns of a matrix of 2 x 3 are the places; every second element is a value.
    const places = pr.tensor(Int32Array.of(1, 0, 1, 0, 2, 0), { shape: [2, 3] });
    const data = Float64Array.from({ length: 12 }, (_, index) => index + rank);
    const blocks = pr.tensor(data, { shape: [3, 2], strides: [4, 2] });
    const options = { reduceOp: pr.ReduceOp.AVG };
    const [indices, values] = await group.allreduceSparse(places, blocks, options);
    assert.deepEqual(indices.shape, [2, 2]);
    assert.deepEqual([...indices.data].map(Number), [0, 1, 2, 0]);
    assert.deepEqual(values.shape, [2, 2]);
    // Entries 0 and 2 are at (1, 0); the ranks' values differ by one.
    assert.deepEqual([...values.data], [4.5, 6.5, 9, 13]);
    const none = await group.allreduceSparse(new BigInt64Array(0), new Float32Array(0));
    assert.deepEqual(none.map((tensor) => tensor.shape), [[0], [0]]);
  });
});

test("the free function sums in the default group, and in others", async () => {
  await pr.initProcessGroup({ store: new pr.HashStore(), rank: 0, worldSize: 1 });
  const [places, ones] = [BigInt64Array.of(7n, 2n, 7n), Float32Array.of(1, 2, 3)];
  const lists = (sum) => sum.map((tensor) => [...tensor.data].map(Number));
  assert.deepEqual(lists(await pr.allReduceSparse(places, ones)), [[2, 7], [2, 4]]);
  const group = await pr.newGroup([0]);
  const options = { op: pr.ReduceOp.AVG, group, timeout: 20_000 };
  assert.deepEqual(lists(await pr.allReduceSparse(places, ones, options)), [[2, 7], [2, 4]]);
  const outside = { group: pr.NON_GROUP_MEMBER };
  assert.equal(await pr.allReduceSparse(places, ones, outside), undefined);
  await assert.rejects(pr.allReduceSparse([1], ones), pr.InvalidTypeError);
  await pr.destroyProcessGroup();
});

test("what cannot be summed is refused on all ranks", async () => {
  await inGroups(2, async (group, rank) => {
    const places = BigInt64Array.of(rank === 0 ? -1n : 0n);
    const said = rank === 0 ? /one is -1/ : /rank 0 refused what it was given/;
    await assert.rejects(group.allreduceSparse(places, Float32Array.of(1)), said);
    const [, values] = await group.allreduceSparse(BigInt64Array.of(3n), Float32Array.of(1));
    assert.deepEqual([...values.data], [2]);
  });
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
  await assert.rejects(group.allreduceSparse([1], Float32Array.of(1)), pr.InvalidTypeError);
});
