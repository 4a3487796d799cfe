// Every kind of array, element type and memory, on two processes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("arrays");

test("an array's class is its element type", async () => {
  for (const got of await onRanks(2, SCENARIOS, "everyArray")) {
    const { Buffer, DataView, shared, wrongSharedParts, subarray, ...arrays } = got;
    assert.ok(Object.keys(arrays).length >= 11);
    for (const [name, values] of Object.entries(arrays)) {
      // Rank 0 has [1, 0] and rank 1 has [2, 20].
      assert.deepEqual(values, ["3", "20"], name);
    }
    assert.deepEqual(Buffer, ["1", "200"]);
    assert.deepEqual(DataView, ["0", "11", "0", "0"], "the bytes around the view are left alone");
    assert.deepEqual(shared, ["1", "6"]);
    assert.deepEqual(wrongSharedParts, []);
    assert.deepEqual(subarray, ["9", "1", "1", "9"], "the elements around it are left alone");
  }
});

test("tensors say what arrays cannot", async () => {
  for (const got of await onRanks(2, SCENARIOS, "everyTensor")) {
    assert.deepEqual(got.f16, [0x4200, 0x4400]);
    assert.deepEqual(got.bf16, [0x4000, 0x3f80]);
    assert.deepEqual(got.bool, [1, 0, 1]);
    assert.deepEqual(got.complex64, [1, 2, 4, 6]);
    assert.deepEqual(got.complex128, [1, 2]);
    // The column is elements 1, 5 and 9 of 12, which are `at` on rank 0 and `at + 100` on rank 1.
    assert.deepEqual([got.column[1], got.column[5], got.column[9]], [102, 110, 118]);
    const unchanged = [0, 2, 4, 11];
    assert.deepEqual(unchanged.map((at) => got.column[at] % 100), unchanged);
    assert.deepEqual(got.transposed, [0, 2, 4, 6, 8, 10]);
    assert.deepEqual(got.owned, [3, 3, 3, 3]);
    assert.ok(got.ownedIsResult && got.ownedStays);
    assert.deepEqual(got.between, [2, 77, 6, 4]);
  }
});

for (const size of [1, 2, 3]) {
  test(`results lie in parts of what ${size} ranks give, and the other way round`, async () => {
    const results = await onRanks(size, SCENARIOS, "partsOfAnother");
    for (const wrong of results) assert.deepEqual(wrong, []);
  });
}
