// At the debug level DETAIL, ranks that disagree say where each has called.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("call_sites");
const SITE = /, called at (.*scenarios\/call_sites\.js):(\d+) in (\w+)$/u;

const LINES = readFileSync(new URL(SCENARIOS), "utf8").split("\n");

/** The line of the scenarios that defines a function. */
const lineOf = (name) => LINES.findIndex((line) => line.startsWith(`const ${name} = `)) + 1;

// Short ones are issued by the call itself, long ones once they are copied.
for (const length of [4, 4 << 20]) {
  test(`both sides say where they called, with ${length} elements`, async () => {
    for (const size of [2, 3]) {
      const results = await onRanks(size, SCENARIOS, "disagree", { argument: ["DETAIL", length] });
      for (const { first, later } of results) {
        assert.equal(first?.kind, "CollectiveMismatch", first?.message);
        for (const [rank, text] of [
          [first.rank, first.ours],
          [first.otherRank, first.theirs],
        ]) {
          const [, , line, name] = SITE.exec(text) ?? assert.fail(text);
          assert.equal(name, rank === size - 1 ? "ofLast" : "ofFirst");
          assert.equal(Number(line), lineOf(name));
          assert.ok(first.message.includes(text));
        }
        assert.deepEqual([later.ours, later.theirs], [first.ours, first.theirs]);
      }
    }
  });
}

test("below DETAIL nobody says it", async () => {
  for (const { first } of await onRanks(2, SCENARIOS, "disagree", { argument: ["OFF", 4] })) {
    assert.equal(first?.kind, "CollectiveMismatch", first?.message);
    assert.doesNotMatch(first.message, /called at/u);
  }
});
