// Memory that goes away while an operation is in flight: transferred, resized, collected, or with
// its whole Worker. Nothing is ever written into it, and the process goes on.

import assert from "node:assert/strict";
import { constants } from "node:buffer";
import { test } from "node:test";

import { alloc } from "../js/index.js";
import { onRanks, scenarios, startRanks } from "./support/ranks.js";

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

test("memory that no array can look at is refused", () => {
  const most = constants.MAX_LENGTH;
  const larger = [["u8", [most + 1]], ["f32", [most / 2, 1]], ["complex128", [most]]];
  for (const [dtype, shape] of larger) {
    assert.throws(() => alloc(dtype, shape), { kind: "InvalidArgument" });
  }
});

const LOST = /transferred or detached|was resized|had \d+ bytes/;
for (const how of ["transfer", "resize", "resizeOther"]) {
  for (const isLarge of [false, true]) {
    const size = isLarge ? "a large" : "a queued";
    test(`${size} array that is lost (${how}) before it was copied fails the group`, async () => {
      const argument = { how, isLarge };
      const [zero, one] = await onRanks(2, SCENARIOS, "lostBeforeCopy", { argument });
      assert.equal(zero.ended[1].kind, "InvalidArgument");
      assert.match(zero.ended[1].message, LOST);
      for (const error of [zero.ended[2], zero.ended[3], ...one.ended.slice(1)]) {
        assert.equal(error?.kind, "Aborted");
        assert.match(error.message, /rank 0: could not take part in allreduce: /);
        assert.match(error.message, LOST);
      }
      assert.deepEqual([zero.next, one.next], [100, 100], "nothing was added to the next one");
    });
  }
}

test("operations on one array that are not awaited follow one another", async () => {
  const results = await onRanks(2, SCENARIOS, "oneArray");
  assert.deepEqual(results, [new Array(6).fill(true), new Array(6).fill(true)]);
});

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

for (const elements of [1, 65_537, 1 << 20, 5 << 20]) {
  test(`a rank that is killed leaves ${elements} elements and what lies beside them`, async () => {
    const options = { argument: { elements } };
    const [zero, one] = await startRanks(2, SCENARIOS, "killed", options);
    const { value } = await zero.result;
    assert.equal((await one.result).signal, "SIGKILL");
    assert.equal(value.kind, "RankFailed");
    assert.ok(value.isOurs, "the array was written to after the operation had failed");
    assert.deepEqual(value.outside, new Set([-1]));
  });
}

test("shared memory that a Worker writes to is reduced all the same", async () => {
  for (const elements of [3, 65_537]) {
    const argument = { elements };
    assert.deepEqual(await onRanks(2, SCENARIOS, "sharedMeanwhile", { argument }), [true, true]);
  }
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

test("operations on a tensor and on arrays over its memory follow one another", async () => {
  const [zero, one] = await onRanks(2, SCENARIOS, "oneMemory");
  assert.deepEqual([zero, one], [Array(27).fill(true), Array(27).fill(true)]);
});

test("an operation for whose copy there is no memory fails the group", async () => {
  const [zero, one] = await onRanks(2, SCENARIOS, "noMemory");
  assert.equal(zero.thrown?.kind, "InvalidArgument");
  assert.match(zero.thrown.message, /not enough memory for a copy of 4503599627370496 bytes/);
  assert.equal(one.ended.length, 2);
  for (const error of [...zero.ended, ...one.ended]) {
    assert.equal(error?.kind, "Aborted");
    assert.match(error.message, /rank 0: could not take part in .*: not enough memory for a copy/);
  }
  assert.deepEqual([...zero.next, ...one.next], [0, 0, 0, 0, 0, 0, 0, 0]);
});

test("an operation that cannot be begun where it was prepared fails the group", async () => {
  const [zero, one] = await onRanks(2, SCENARIOS, "lostInPreparation");
  assert.equal(zero.thrown?.kind, "InvalidArgument");
  assert.match(zero.thrown.message, LOST);
  for (const error of [...zero.ended, ...one.ended]) {
    assert.equal(error?.kind, "Aborted");
    assert.match(error.message, /rank 0: could not take part in reduceScatter: /);
    assert.match(error.message, LOST);
  }
});
