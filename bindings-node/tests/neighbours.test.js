// Neighbour collectives on grids and graphs, against values worked out by hand.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";
import { inGroups } from "./support/groups.js";

for (const size of [1, 2, 3, 5]) {
  test(`a ring and a line of ${size} ranks`, async () => {
    await inGroups(size, async (group, rank) => {
      const ring = await group.createCart([size], [true]);
      const [before, after] = [(rank + size - 1) % size, (rank + 1) % size];
      assert.deepEqual(ring.sources, [before, after]);
      assert.deepEqual(ring.shift(0), [before, after]);
      assert.deepEqual(ring.coordinates(rank), [rank]);
      assert.equal(ring.rankAt([-1]), size - 1);
      for (const length of [0, 1, 3]) {
        const filled = (value) => new Float64Array(length).fill(value);
        const outputs = [filled(9), filled(9)];
        // What is given forward comes from behind, also where both neighbours are one rank.
        const work = ring.neighborAlltoall(outputs, [filled(-rank), filled(rank + 0.5)]);
        assert.equal(await work, outputs);
        assert.deepEqual(outputs, [filled(before + 0.5), filled(-after)]);
      }

      const line = await group.createCart([size]);
      const isFirst = rank === 0;
      const isLast = rank === size - 1;
      assert.deepEqual(line.destinations, [isFirst ? null : before, isLast ? null : after]);
      assert.deepEqual([line.dims, line.periods], [[size], [false]]);
      const came = Int32Array.of(-1, -2, -3, -4);
      await line.neighborAlltoallSingle(came, Int32Array.of(rank, 1, rank, 2));
      assert.deepEqual([...came.slice(0, 2)], isFirst ? [-1, -2] : [before, 2]);
      assert.deepEqual([...came.slice(2)], isLast ? [-3, -4] : [after, 1]);
      const gathered = [Uint8Array.of(7), Uint8Array.of(8)];
      await line.neighborAllgather(gathered, Uint8Array.of(rank), { timeout: 60_000 });
      assert.deepEqual(gathered.map(([it]) => it), [isFirst ? 7 : before, isLast ? 8 : after]);
    });
  });

  test(`a graph of ${size} ranks whose edges are twice`, async () => {
    await inGroups(size, async (group, rank) => {
      const [before, after] = [(rank + size - 1) % size, (rank + 1) % size];
      const graph = await group.createDistGraphAdjacent([before, before], [after, after]);
      assert.deepEqual([graph.sources, graph.dims ?? null], [[before, before], null]);
      const outputs = [new BigInt64Array(before), new BigInt64Array(before + 1)];
      const filled = (length) => new BigInt64Array(length).fill(BigInt(length));
      await graph.neighborAlltoall(outputs, [filled(rank), filled(rank + 1)]);
      assert.deepEqual(outputs, [filled(before), filled(before + 1)]);
      const all = new Float32Array(2);
      await graph.neighborAllgatherSingle(all, Float32Array.of(rank));
      assert.deepEqual([...all], [before, before]);
    });
  });
}

test("what ranks disagree on is said on all of them", async () => {
  await inGroups(2, async (group, rank) => {
    const made = rank === 0 ? [[], [1]] : [[], []];
    const error = await group.createDistGraphAdjacent(...made).catch((error) => error);
    assert.ok(error instanceof pr.TopologyMismatchError, String(error));
    assert.match(error.message, /rank 0 gave 1 edge to rank 1, but rank 1 gave 0 edges from/);
    assert.deepEqual([error.rank, error.otherRank], [0, 1]);
    assert.deepEqual([error.ours, error.theirs], ["1 edge to rank 1", "0 edges from rank 0"]);
    const grid = await group.createCart([2, 1]);
    assert.equal(String(grid).split(",")[1], ` rank ${rank} of 2`);
    const one = [Float32Array.of(1)];
    assert.throws(() => grid.neighborAlltoall(one, one), /expected 4 output tensors/);
    await assert.rejects(async () => group.createCart([3]), /has 3 places, but the group has 2/);
  });
});

test("ranks that call other methods, or on other topologies, learn which", async () => {
  const two = (value) => [Float32Array.of(value), Float32Array.of(value)];
  const failed = async (call) => {
    const error = await call().catch((error) => error);
    assert.ok(error instanceof pr.CollectiveMismatchError, String(error));
    return error.message;
  };
  await inGroups(2, async (group, rank) => {
    const grid = await group.createCart([2], [true]);
    const graph = await group.createDistGraphAdjacent([1 - rank, 1 - rank], [1 - rank, 1 - rank]);
    const called = rank === 0 ? grid : graph;
    const text = await failed(async () => called.neighborAlltoall(two(0), two(1)));
    assert.match(text, /neighborAlltoall of f32 on the grid that operation 2 made/);
    assert.match(text, /neighborAlltoall of f32 on the graph that operation 4 made/);
  });
  await inGroups(2, async (group, rank) => {
    const ring = await group.createCart([2], [true]);
    const text = await failed(async () => {
      if (rank === 0) await ring.neighborAllgather(two(0), Float32Array.of(1));
      else await ring.neighborAlltoall(two(0), two(1));
    });
    assert.match(text, /neighborAllgather of f32 on/);
    assert.match(text, /neighborAlltoall of f32 on/);
  });
});

test("an element that is refused is named", async () => {
  await inGroups(1, async (group) => {
    const refused = async () => group.createCart([1, -3]);
    await assert.rejects(refused, /list of integers from 0 to 4294967295, but element 1 is -3$/);
    const grid = await group.createCart([1]);
    assert.throws(() => grid.coordinates(1), /rank must be from 0 to 0, got 1/);
    assert.throws(() => grid.shift(1), /dimension must be from 0 to 0, got 1/);
  });
});

test("dimensions are balanced", () => {
  assert.deepEqual(pr.computeDims(12, 2), [4, 3]);
  assert.deepEqual(pr.computeDims(12, [0, 3, 0]), [2, 3, 2]);
  assert.throws(() => pr.computeDims(6, [4, 0]), pr.InvalidArgumentError);
});
