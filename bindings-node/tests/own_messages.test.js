// Messages of a rank to itself on 1, 2, 3 and 5 processes, against values worked out by hand.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("own_messages");

for (const size of [1, 2, 3, 5]) {
  test(`messages to oneself on ${size} ranks`, async () => {
    const results = await onRanks(size, SCENARIOS, "ownMessages");
    results.forEach((got, rank) => {
      assert.deepEqual(got.values, [0, 3, 400_000].flatMap((n) => [n, true, n, true]));
      assert.deepEqual(got.senders, Array(6).fill(rank));
      assert.deepEqual(got.batch, [rank, 7]);
      assert.equal(got.outside, "RankNotInGroup");
      assert.equal(got.one, 41 + rank);
      const all = Array.from({ length: size }, (_, other) => 41 + other);
      assert.deepEqual(got.anyone.sort(), all);
      assert.deepEqual(got.failure, ["MessageSize", rank, rank, 16]);
      assert.equal(got.total, size);
      assert.equal(got.sequence, results[0].sequence);
      assert.equal(typeof got.durations[0], "number");
      assert.equal(got.durations[1], got.durations[0], "it is over");
    });
  });
}
