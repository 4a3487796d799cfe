// Every collective and message on worlds of 1, 2, 3 and 5 processes, against values worked out by
// hand.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("collectives");

for (const size of [1, 2, 3, 5]) {
  test(`collectives on ${size} ranks`, async () => {
    const results = await onRanks(size, SCENARIOS, "collectives");
    const all = Array.from({ length: size }, (_, rank) => rank);
    const sum = (f) => all.map(f).reduce((a, b) => a + b, 0);
    results.forEach((got, rank) => {
      assert.deepEqual([...got.allreduce], [sum((r) => r + 1), sum((r) => 10 * r)]);
      assert.deepEqual([...got.allreduceOptions], [size]);
      assert.deepEqual([...got.coalesced], [sum((r) => r), sum(() => 1)]);
      assert.deepEqual(got.allgatherCoalesced, all.map((r) => [[r, -r], [10 * r]]));
      assert.deepEqual([...got.reduce], rank === size - 1 ? [sum((r) => r)] : [rank]);
      assert.deepEqual([...got.broadcast], [size - 1, 7]);
      assert.deepEqual(got.allgather, all.map((r) => [r, r * r]));
      assert.deepEqual([...got.allGatherSingle], all.flatMap((r) => [r, -r]));
      assert.deepEqual(got.gather, rank === 0 ? all.map((r) => [r]) : []);
      assert.deepEqual([...got.scatter], [100 + rank]);
      assert.deepEqual([...got.reduceScatter], [sum((r) => r * 10 + rank)]);
      assert.deepEqual([...got.reduceScatterSingle], [sum((r) => r * 10 + rank)]);
      assert.deepEqual(got.alltoall, all.map((r) => [r * 10 + rank]));
      assert.deepEqual([...got.allToAllSingle], all.map((r) => r * 10 + rank));
      const own = (value) => new Array(rank).fill(value);
      const whole = all.flatMap((r) => new Array(r).fill(r));
      assert.deepEqual([...got.allGatherV], whole);
      assert.deepEqual([...got.gatherV], rank === size - 1 ? whole : whole.map(() => 0));
      assert.deepEqual([...got.scatterV], own(rank));
      assert.deepEqual([...got.reduceScatterV], own(rank * size));
      assert.deepEqual([...got.allToAllV], all.flatMap(() => own(rank)));
      const prefix = (f) => all.slice(0, rank + 1).reduce((total, r) => total + f(r), 0);
      assert.deepEqual([...got.scan], [prefix((r) => r + 1), prefix((r) => 10 * r)]);
      // Rank 0 keeps what it has.
      assert.deepEqual([...got.exscan], [rank === 0 ? 5 : rank + 4]);
      assert.deepEqual(got.prepared, [undefined, size - 1, 10 * (size - 1), size ** 2, size ** 3]);
      assert.deepEqual([...got.exchanged], [(rank + size - 1) % size, 7]);
      assert.deepEqual([...got.shifted], rank === 0 ? [0, 0] : [rank, 5]);
      assert.deepEqual([...got.permutedInPlace], [...got.shifted]);
      const source = (rank + size - 1) % size;
      assert.deepEqual(got.found, { source, tag: 9, dtype: "f64", bytes: 8 * (source + 1) });
      assert.equal(got.notFound ?? null, null);
      assert.deepEqual([...got.inPlace], [(rank + 1) % size]);
      assert.equal(got.barrier, undefined);
      assert.ok(got.sameArray && got.sameList);
      if (size > 1) {
        assert.deepEqual([...got.received], [(rank + size - 1) % size]);
        assert.equal(got.sender, (rank + size - 1) % size);
      }
    });
  });
}
