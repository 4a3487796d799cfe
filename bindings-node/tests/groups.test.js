// The default group under `polyrank run`, groups of it, objects, messages; signals and aborts.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("groups");
const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const TARGET = process.env.POLYRANK_TARGET ?? path("../../target/debug");

test("ranks that `polyrank run` started form the default group", async () => {
  const launcher = `${TARGET}/polyrank`;
  assert.ok(existsSync(launcher), "the launcher is built: cargo build -p polyrank-cli");
  const words = ["run", "-n", "3", "--", process.execPath, path("support/launched.js")];
  const { stdout } = await promisify(execFile)(launcher, words, { timeout: 120_000 });
  const line = stdout.split("\n").find((one) => one.includes('[{"'));
  const all = JSON.parse(line.slice(line.indexOf("[{")));
  all.forEach((found, rank) => {
    assert.deepEqual([found.rank, found.size, found.max], [rank, 3, 3]);
    assert.equal(found.outside, rank !== 1);
    assert.equal(found.rankInOdd, rank === 1 ? 0 : -1);
    assert.equal(found.oddSum, 1);
    assert.deepEqual([found.reversedRank, found.ranks], [2 - rank, [2, 1, 0]]);
    assert.equal(found.fromReversedRoot, 2);
    assert.deepEqual(found.objects, [0, 1, 2].map((other) => [other, 3, [other]]));
    assert.deepEqual(found.told, ["hello", { deep: true }]);
    assert.equal(found.scattered, `for ${rank}`);
    assert.match(found.late, /Rank 1 failed to pass monitoredBarrier in 0 ms/);
    const nothings = [null, null, 2];
    assert.deepEqual(found.nothings, rank === 0 ? [...nothings, null, null, null] : nothings);
  });
  assert.deepEqual([all[1].sender, all[1].received], [0, 2.5]);
  assert.deepEqual(all.map((found) => found.count), [1, 2, 1]);
});

test("signals end waits, and harm nothing else", async () => {
  const [zero, one] = await onRanks(2, SCENARIOS, "signals");
  assert.deepEqual([zero.get, zero.join, zero.work], ["enough", "enough", "enough"]);
  assert.equal(zero.after, "1");
  assert.deepEqual(zero.array, [1], "what nobody waits for is not written back");
  assert.deepEqual(one.array, [3], "but the other rank gets its sum");
  assert.deepEqual([zero.before, one.before], ["before", "before"]);
});

test("a group that no free function knows is left at the end of a block", async () => {
  assert.deepEqual(await onRanks(2, SCENARIOS, "block"), ["InvalidGroup", "InvalidGroup"]);
});

test("objects to one rank arrive in order, however it is named", async () => {
  const [, received] = await onRanks(2, SCENARIOS, "messages");
  assert.deepEqual(received, [[0, 300_000], [1, 1], [2, 300_000], [3, 1]]);
});

test("a group is left though a call that nobody waits for is under way", async () => {
  const [left, other] = await onRanks(2, SCENARIOS, "leave");
  assert.deepEqual([left.given, left.shutdown], ["enough", "over"]);
  // Not within the 30 min that its operations have.
  assert.match(other.kind, /^(Aborted|RankFailed)$/);
});

test("an aborted group says so on every rank", async () => {
  for (const error of await onRanks(2, SCENARIOS, "abort")) {
    assert.deepEqual([error.kind, error.name], ["Aborted", "AbortedError"]);
    assert.deepEqual([error.rank, error.collective], [0, "allreduce"]);
    assert.equal(typeof error.seq, "number");
  }
});

test("calls that cross are told, however many groups were made before", async () => {
  for (const [kind, message] of await onRanks(2, SCENARIOS, "crossing")) {
    assert.equal(kind, "Rendezvous");
    for (const name of ["one", "other"]) assert.ok(message.includes(`(group '${name}')`), message);
  }
});

for (const size of [2, 3]) {
  test(`${size} ranks make groups at once, each in an order of its own`, async (context) => {
    const seed = randomInt(2 ** 31);
    context.diagnostic(`seed ${seed}`);
    const options = { argument: { repetitions: 50, seed } };
    for (const count of await onRanks(size, SCENARIOS, "anyOrder", options)) {
      assert.ok(count >= 150, `${count} groups of seed ${seed}`);
    }
  });
}

test("of two groups of one name that are made at once, one is", async () => {
  for (const found of await onRanks(3, SCENARIOS, "oneName")) {
    assert.deepEqual(found, [3, 3, "DuplicateGroup"]);
  }
});

test("a group is left though one is being made out of it", async () => {
  const [kind] = await onRanks(2, SCENARIOS, "leftWhileMaking");
  assert.match(kind, /^(Aborted|RankFailed|Rendezvous)$/);
});

test("a hundred groups of eight ranks fit a process", async () => {
  const options = { argument: { maxBytes: 64 << 20 } };
  for (const found of await onRanks(8, SCENARIOS, "manyGroups", options)) {
    const { most, bytes, before, after, groups } = found;
    assert.ok(groups > 90 && most <= 1024, `${most} descriptors for ${groups} groups`);
    assert.ok(bytes <= options.argument.maxBytes, `${bytes} bytes`);
    // Threads that slept may have left one descriptor each for the next that sleeps.
    assert.ok(after <= before + 2, `${before} descriptors before, ${after} after`);
  }
});
