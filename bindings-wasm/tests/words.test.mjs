// What a page says of who waits for whom is what the core says: both are compared with the same
// cases (`core/src/recorder/watch/words.json`).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { groupTitle, late, meetingName, meetingOver, stalled } from "../js/watch/words.js";

const place = new URL("../../core/src/recorder/watch/words.json", import.meta.url);
const cases = JSON.parse(readFileSync(place, "utf8"));

for (const { what, group: given, operation, waited_ms: waited, obstacle, places, said } of
  cases.stalls) {
  test(what, () => {
    const group = { ...given, shown: groupTitle(given.name, given.description) };
    const known = new Map(Object.entries(places).map(([rank, place]) => [Number(rank), place]));
    assert.equal(stalled(group, operation, waited, { known, obstacle }), said);
  });
}

for (const { obstacle, waited, what, over, said, ...meeting } of cases.meetings) {
  test(said, () => {
    assert.equal(late(meeting, obstacle, waited), said);
    assert.deepEqual([meetingName(meeting), meetingOver(meeting)], [what, over]);
  });
}

test("a description that a group has for want of one is not said", () => {
  for (const description of ["", "undefined", "default_pg:split"]) {
    assert.equal(groupTitle("dp", description), "dp");
  }
});
