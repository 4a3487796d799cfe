// Looking for messages, and messages beside calls that several operations are made of: neither
// holds up the other, and a wait that is given up leaves its group as it was.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("probes");

test("a wait for a message does not hold up the message", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "exchanged"), [
    { found: [1, 5, "f32", 8], got: [1, 1], sum: 2 },
    { found: [0, 5, "f32", 8], got: [0, 0], sum: 2 },
  ]);
});

test("a wait that is given up, or whose limit passes, leaves its group whole", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "givenUp"), ["whole", "whole"]);
});

test("a wait with a signal finds what comes later", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "foundLater"), [0, 4]);
});

for (const composed of ["allreduceSparse", "allGatherObject", "splitGroup", "monitoredBarrier"]) {
  test(`messages pass ${composed}`, async () => {
    const options = { argument: composed };
    assert.deepEqual(await onRanks(2, SCENARIOS, "messagesPass", options), [7, 7]);
  });
}
