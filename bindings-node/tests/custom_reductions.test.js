// Reduction operators that are functions of typed arrays: in the order of the ranks, and what an
// error in one does to whom.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("custom_reductions");

for (const size of [1, 2, 3, 5, 8]) {
  test(`arrays are combined in the order of the ranks, ${size} of them`, async () => {
    const expected = Array.from({ length: size }, () => true);
    assert.deepEqual(await onRanks(size, SCENARIOS, "combined"), expected);
  });
}

test("every element type has functions", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "everyType"), [true, true]);
});

test("operations in flight keep their order, whatever else runs", async () => {
  assert.deepEqual(await onRanks(3, SCENARIOS, "inFlight"), [true, true, true]);
});

for (const culprit of [0, 1, 2]) {
  test(`what the function of rank ${culprit} throws is the operation's own error`, async () => {
    const all = await onRanks(3, SCENARIOS, "throws", { argument: culprit });
    all.forEach((told, rank) => {
      if (rank === culprit) assert.equal(told, "the very error");
      else assert.match(told, new RegExp(`^Aborted ${culprit} .*TypeError: enough$`));
    });
  });
}

test("a function that returns something else than an array of its length fails", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "wrongResults"), [true, true]);
});

test("numbers that the operands' type holds may come in another array", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "likeOperands"), [true, true]);
});

test("a custom operator against another is a mismatch", async () => {
  for (const text of await onRanks(2, SCENARIOS, "againstAnother")) {
    assert.match(text, /^CollectiveMismatch .*CUSTOM/);
    assert.match(text, /SUM/);
  }
});

test("functions are let go with their operators", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "letGo", { flags: ["--expose-gc"] }), [true, true]);
});

test("the greatest and the least value, and whose it is; results of logic are 0 or 1", async () => {
  for (const size of [1, 3]) {
    const all = await onRanks(size, SCENARIOS, "located");
    assert.ok(all.every((is) => is === true));
  }
});

test("operations in flight keep their functions", async () => {
  const all = await onRanks(2, SCENARIOS, "inFlightOnly", { flags: ["--expose-gc"] });
  assert.deepEqual(all, [true, true]);
});

test("an operator has what it was made of", () => {
  const op = pr.ReduceOp.custom((a) => a, { commute: true });
  assert.deepEqual([op.name, op.value, op.commute], ["CUSTOM", pr.ReduceOp.CUSTOM.value, true]);
  assert.equal(pr.ReduceOp.custom((a) => a).commute, false);
  assert.throws(() => pr.ReduceOp.custom(3), {
    name: "InvalidTypeError",
    message: "ReduceOp.custom(): 'fn' must be a function, not number",
  });
  assert.throws(() => pr.ReduceOp.custom(async (a) => a), {
    name: "InvalidTypeError",
    message: /must return an array, not a promise: it cannot be async/,
  });
  assert.throws(() => pr.premulSum("2"), { name: "InvalidTypeError", message: /not string/ });
});
