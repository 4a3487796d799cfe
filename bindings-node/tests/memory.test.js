// Memory that goes away while an operation is in flight: transferred, resized, collected, or with
// its whole Worker. Nothing is ever written into it, and the process goes on.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("memory");
const options = { flags: ["--expose-gc"] };

for (const [name, text] of [
  ["transfer", /transferred or detached/],
  ["shrink", /transferred or detached|had \d+ bytes/],
]) {
  test(`an array that is lost to ${name} is not written, and the work says so`, async () => {
    const [zero, one] = await onRanks(2, SCENARIOS, name, options);
    assert.equal(zero.ended.length, 50);
    for (const error of zero.ended) {
      assert.equal(error?.kind, "InvalidArgument");
      assert.match(error.message, text);
    }
    assert.deepEqual([zero.last, one.last], [[3], [3]]);
  });
}

for (const name of ["shrinkAndGrow", "forget"]) {
  test(`an operation ends well after ${name}`, async () => {
    const [zero] = await onRanks(2, SCENARIOS, name, options);
    assert.deepEqual(zero.ended, new Array(50).fill(null));
    assert.deepEqual(zero.last, [3]);
  });
}

test("memory of polyrank cannot be given away", async () => {
  const [got] = await onRanks(1, SCENARIOS, "ownedStays", options);
  assert.deepEqual(got, [0, 0, 0, 5]);
});

for (const kind of ["staged", "owned"]) {
  test(`a Worker that is terminated under way with ${kind} memory harms nobody`, async () => {
    const argument = { rounds: 25, kind };
    const [zero] = await onRanks(2, SCENARIOS, "terminate", { ...options, argument });
    assert.equal(zero.kinds.length, 25);
    for (const kindOfError of zero.kinds) {
      assert.ok(["RankFailed", "Aborted"].includes(kindOfError), kindOfError);
    }
  });
}
