// Those that are left of a group: `revoke`, `getError`, `agree` and `shrinkGroup`, over processes
// of which one is killed.

import assert from "node:assert/strict";
import test from "node:test";

import * as pr from "polyrank";
import { onRanks, scenarios, startRanks } from "./support/ranks.js";

const SCENARIOS = scenarios("survivors");

for (const size of [2, 3, 5]) {
  test(`a rank of ${size} that is killed is named, and the others go on`, async () => {
    const ranks = await startRanks(size, SCENARIOS, "killed");
    const results = await Promise.all(ranks.map((rank) => rank.result));
    const victim = size - 1;
    assert.equal(results[victim].signal, "SIGKILL");
    const survivors = results.slice(0, victim);
    const common = survivors.reduce((all, _, rank) => all & (0b110 + rank), -1);
    for (const [rank, { value, error }] of survivors.entries()) {
      assert.equal(error, undefined);
      assert.equal(value.before, pr.WorkResult.SUCCESS);
      assert.equal(value.after, pr.WorkResult.COMM_ERROR);
      assert.match(value.broken.message, /rank 0: it revoked the group/);
      assert.equal(value.agreed, common);
      assert.deepEqual([value.needed.class, value.needed.rank], ["RankFailedError", victim]);
      assert.match(value.needed.message, new RegExp(`rank ${victim}`));
      assert.equal(value.sum, (victim * (victim - 1)) / 2);
      assert.equal(value.again, 5);
      assert.deepEqual(value.place, [rank, victim]);
    }
  });

  test(`a rank of ${size} that lives is left out`, async () => {
    const results = await onRanks(size, SCENARIOS, "excluded");
    for (const [rank, result] of results.entries()) {
      assert.equal(result.agreed, 0b101);
      assert.match(result.wrong.message, new RegExp(`rank ${rank}, which calls it`));
      if (rank === size - 1) continue;
      assert.equal(result.sum, ((size - 1) * (size - 2)) / 2);
      assert.equal(result.done, true);
    }
  });
}

test("a prepared operation ends with the members", async () => {
  for (const error of await onRanks(2, SCENARIOS, "prepared")) {
    assert.equal(error.class, "ReconfiguredError");
  }
});
