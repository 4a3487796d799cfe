// How groups end: destroying one closes what was open for it, whatever still refers to it; aborting
// one forgets it, so that another can be made.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { onRanks, scenarios } from "./support/ranks.js";

const CYCLES = fileURLToPath(new URL("./support/cycles.js", import.meta.url));
const SCENARIOS = scenarios("endings");

/** A port that was free a moment ago. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** What ranks say that made and left `count` groups. */
async function cycles(size, ending, count) {
  const port = await freePort();
  const ranks = Array.from({ length: size }, (_, rank) => {
    const words = ["--expose-gc", CYCLES, ...[rank, size, port, ending, count].map(String)];
    return promisify(execFile)(process.execPath, words);
  });
  return (await Promise.all(ranks)).map(({ stdout }) => JSON.parse(stdout));
}

test("a thousand default groups stay within 64 descriptors", async () => {
  for (const { most } of await cycles(2, "collected", 1000)) {
    assert.ok(most <= 64, `${most} descriptors`);
  }
});

for (const size of [1, 2, 3]) {
  for (const ending of ["referred to", "collected"]) {
    test(`groups of ${size} ranks that are ${ending} leave nothing open`, async () => {
      for (const { before, after, referred } of await cycles(size, ending, 40)) {
        assert.ok(after <= before, `${before} descriptors, and ${after} after 34 more groups`);
        assert.equal(referred, ending === "collected" ? 0 : 40);
      }
    });
  }
}

for (const size of [1, 2, 3]) {
  test(`${size} ranks that abort the default group make another`, async () => {
    for (const found of await onRanks(size, SCENARIOS, "abortedAndMadeAgain", { argument: size })) {
      assert.deepEqual(found.initialized, [true, false, true, false]);
      assert.deepEqual(found.sums, [size, 2 * size]);
      if (size > 1) assert.match(found.failure, /^(Aborted|RankFailed)$/);
      assert.equal(found.old, "InvalidGroup");
      assert.equal(found.nothing, "NotInitialized");
    }
  });
}
