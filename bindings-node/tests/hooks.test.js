// Hooks: what functions of JavaScript learn of operations, and what an error in one does to whom.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("hooks");

for (const size of [1, 2, 3, 5]) {
  test(`hooks see the arrays of the call, on ${size} ranks`, async () => {
    const all = await onRanks(size, SCENARIOS, "arrays");
    const expected = Array.from({ length: size }, () => [size - 1, 1, 2]).flat();
    for (const gathered of all) assert.deepEqual(gathered, expected);
  });
}

test("hooks get handles, and are told of ends, of messages and of objects", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "ends"), [true, true]);
});

test("an error in a hook is the caller's own, and all ranks learn why", async () => {
  const [zero, one, two] = await onRanks(3, SCENARIOS, "stops");
  assert.equal(one, "stopped");
  for (const told of [zero, two]) {
    const why = "its pre-hook 4 stopped ALLREDUCE #1: not this one";
    assert.match(told, new RegExp(`^1 group '.*' was aborted by rank 1: ${why}; allreduce `));
  }
});

test("NaN is found before it spreads", async () => {
  const [zero, one] = await onRanks(2, SCENARIOS, "finite");
  const text = "ALLREDUCE of rank 0: element (150000,) of input 0, of f64, is NaN";
  assert.deepEqual(zero, ["NonFiniteInput", text]);
  assert.equal(one[0], "Aborted");
  assert.ok(one[1].includes(text), one[1]);
});

test("what later hooks throw is reported, and changes nothing", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "harmless"), [true, true]);
});

test("hooks see what earlier operations on an array have written", async () => {
  for (const [sums, ended] of await onRanks(2, SCENARIOS, "chained")) {
    assert.deepEqual(sums, [8, 8, 8, 8, 8, 8, 20]);
    assert.equal(ended[0], "ended well");
    assert.match(ended[1], /^(NonFiniteInput|Aborted)$/);
  }
});

test("handles are of issued operations, other groups are left alone, no end is lost", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "others"), [true, true]);
});

test("abort hooks run where nothing is in flight, but not for this rank's own abort", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "aborts"), [[], ["aborted"]]);
});

test("a hook must not have to be awaited, and may abort a signal", async () => {
  const [zero, one] = await onRanks(2, SCENARIOS, "awaited");
  assert.deepEqual([zero[0], one[0]], ["enough", null]);
  assert.equal(zero[1], "InvalidType");
  assert.match(zero[2], /does not wait for a promise/);
  assert.equal(one[1], "Aborted");
});

for (const size of [1, 2, 3, 5]) {
  test(`operations have names, on ${size} ranks`, async () => {
    assert.ok((await onRanks(size, SCENARIOS, "names")).every(Boolean));
  });
}

test("a check for NaN is made of nothing but whether infinity is allowed", () => {
  for (const given of [[], [true], [{ allowInfinity: true }]]) {
    assert.equal(typeof pr.nanCheck(...given), "function");
  }
  const wrongs = [[5, "number"], ["x", "string"], [null, "null"], [{ foo: 1 }, "foo"]];
  for (const [wrong, text] of wrongs) {
    assert.throws(() => pr.nanCheck(wrong), (error) => {
      assert.equal(error.name, "InvalidTypeError");
      return error.message.startsWith("nanCheck() does not take") && error.message.includes(text);
    });
  }
});
