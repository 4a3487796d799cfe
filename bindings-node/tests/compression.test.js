// Collectives whose elements travel compressed, against what the formats say.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";
import { inGroups } from "./support/groups.js";

/** What is left of numbers that travel as `bf16`, which these have at most 16 more bits than. */
const rounded = (numbers) => {
  const bits = new Uint32Array(Float32Array.from(numbers).buffer);
  bits.forEach((word, at) => {
    bits[at] = (word + 0x7fff + ((word >>> 16) & 1)) & 0xffff0000;
  });
  return new Float32Array(bits.buffer);
};

const values = (rank, count) => Float32Array.from({ length: count }, (_, at) => at / 3 + rank);

for (const size of [1, 2, 3, 5]) {
  test(`numbers of ${size} ranks are rounded, summed, and rounded again`, async () => {
    await inGroups(size, async (group, rank) => {
      for (const count of [0, 1, 257, 1001]) {
        const tensor = values(rank, count);
        const work = group.allreduce([tensor], { compress: "bf16" });
        await work;
        const sums = new Float32Array(count);
        for (let other = 0; other < size; other += 1) {
          rounded(values(other, count)).forEach((number, at) => (sums[at] += number));
        }
        assert.deepEqual(tensor, rounded(sums));
        const { maxAbs, rootMeanSquare } = work.compressionError;
        assert.ok(maxAbs <= count && rootMeanSquare <= maxAbs);
        assert.equal(maxAbs === 0, count <= 1);
      }
    });
  });
}

test("reduce-scatters, allgathers, doubles and averages", async () => {
  await inGroups(2, async (group, rank) => {
    const output = new Float64Array(2);
    const options = { compress: "int8", reduceOp: pr.ReduceOp.AVG };
    await group.reduceScatterSingle(output, Float64Array.of(127, 3, 127, -5), options);
    assert.deepEqual([...output], rank === 0 ? [127, 3] : [127, -5]);
    const all = new Float32Array(4);
    const work = group.allGatherSingle(all, Float32Array.of(rank, 0.5), { compress: "f16" });
    await work;
    assert.deepEqual([...all], [0, 0.5, 1, 0.5]);
    assert.deepEqual(work.compressionError, { maxAbs: 0, rootMeanSquare: 0 });
    const tensor = Float32Array.of(NaN, 1);
    await group.allreduce([tensor], { compress: "int8" });
    assert.ok(Number.isNaN(tensor[0]));
    const plain = group.allreduce(tensor);
    await plain;
    assert.equal(plain.compressionError, null);
  });
});

test("what cannot be compressed is refused, and ranks that disagree are told", async () => {
  const store = new pr.HashStore();
  await Promise.all([0, 1].map(async (rank) => {
    const group = await pr.ProcessGroup.join(store, rank, 2);
    const refused = { name: "InvalidArgumentError" };
    const call = async (tensor, options) => group.allreduce([tensor], options);
    await assert.rejects(call(Float32Array.of(1), { compress: "zip" }), refused);
    await assert.rejects(call(Int32Array.of(1), { compress: "int8" }), refused);
    const maximum = { compress: "int8", reduceOp: pr.ReduceOp.MAX };
    await assert.rejects(call(Float32Array.of(1), maximum), refused);
    await assert.rejects(call(Float32Array.of(1), { compress: 8 }), pr.InvalidTypeError);
    const different = rank === 0 ? { compress: "int8" } : {};
    await assert.rejects(call(new Float32Array(5000), different), pr.CollectiveMismatchError);
  }));
});
