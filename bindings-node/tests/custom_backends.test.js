// Backends that are written in JavaScript: one that exchanges everything through the store of its
// group has the results of every other; what it throws, lacks or never ends is that operation's.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("custom_backends");
const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const TARGET = process.env.POLYRANK_TARGET ?? path("../../target/debug");

for (const size of [1, 2, 3, 5]) {
  test(`every collective and messages over a store, on ${size} ranks`, async () => {
    const sums = await onRanks(size, SCENARIOS, "everything");
    assert.deepEqual(sums, Array.from({ length: size }, () => (size * (size + 1)) / 2));
  });
}

test("works, promises, and errors of many kinds", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "odd"), ["over", "over"]);
});

test("what a method returns is checked, and each error has its own cause", async () => {
  assert.deepEqual(await onRanks(1, SCENARIOS, "careless"), ["over"]);
});

test("one that never ends passes its deadline, or is aborted", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "late"), ["over", "over"]);
});

test("the default group, groups of it, and names", async () => {
  assert.deepEqual(await onRanks(3, SCENARIOS, "defaultGroup"), ["over", "over", "over"]);
});

test("a factory that fails on one rank fails the group on all", async () => {
  for (const message of await onRanks(3, SCENARIOS, "disliked")) {
    assert.match(message, /RangeError: not on this rank/);
  }
});

test("options of a group come to the factory", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "options"), ["over", "over"]);
});

test("fake is a rank of any world", async () => {
  assert.deepEqual(await onRanks(1, SCENARIOS, "fake"), ["over"]);
});

test("a backend of a Worker that has ended fails, and does not hang", async () => {
  assert.deepEqual(await onRanks(1, SCENARIOS, "gone"), ["over"]);
});

test("the program of the page does what it says", async () => {
  const page = await readFile(path("../../site/concepts/own-backends.md"), "utf8");
  const [, program] = page.match(/^```javascript \[JavaScript\]\n(.*?)^```/ms);
  const entry = new URL("../js/index.js", import.meta.url).href;
  const text = program.replace('"polyrank"', JSON.stringify(entry));
  const words = ["run", "-n", "3", "--", process.execPath, "--input-type=module", "-e", text];
  const { stdout } = await promisify(execFile)(`${TARGET}/polyrank`, words, { timeout: 120_000 });
  assert.equal(stdout.match(/mine: 3$/gm)?.length, 3, stdout);
});
