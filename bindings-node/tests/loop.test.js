// The event loop goes on whatever an operation or a store waits for, and processes end when they
// should.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("loop");

test("256 MiB are copied and reduced between turns of the event loop", async () => {
  const argument = { bytes: 256 << 20 };
  for (const got of await onRanks(2, SCENARIOS, "large", { argument })) {
    assert.ok(got.right);
    // 4 MiB in a turn, in and out.
    assert.ok(got.count >= 128, `${got.count} turns`);
  }
});

test("stores wait beside the event loop, however many do", async () => {
  const [got] = await onRanks(2, SCENARIOS, "storeWait");
  assert.ok(got.count >= 20, `${got.count} turns`);
  assert.deepEqual(got.values, Array.from({ length: 12 }, (_, at) => `key ${at}`));
});

test("operations of one group are issued in the order of the calls", async () => {
  for (const got of await onRanks(2, SCENARIOS, "order")) {
    assert.deepEqual(got.small, [1]);
    assert.ok(got.big && got.ended.includes("barrier"));
  }
});

test("calls that wait keep their place among the operations of a group", async () => {
  for (const got of await onRanks(2, SCENARIOS, "mixedOrder")) {
    assert.deepEqual(got.numbers, [1, 2, 3, 4]);
    assert.deepEqual(got.objects, ["of 0", "of 1", "from 1", "for you"]);
    assert.deepEqual(got.sizes, [1, 2]);
    assert.ok(got.big);
  }
});

test("objects that are sent at once arrive in their order", async () => {
  const [received] = await onRanks(2, SCENARIOS, "objectsInOrder");
  assert.deepEqual(received, Array.from({ length: 8 }, (_, at) => "x".repeat(at * 1000)));
});

for (const [what, code] of [
  ["a group that nobody left", 0],
  ["process.exit() with operations in flight", 7],
  ["a wait of a store that is given up", 0],
]) {
  test(`a process ends with ${what}`, async () => {
    const program = fileURLToPath(new URL("./support/ending.js", import.meta.url));
    const child = spawn(process.execPath, [program, what], { stdio: "inherit" });
    const [exit, signal] = await once(child, "exit");
    assert.deepEqual([exit, signal], [code, null]);
  });
}

test("a process lives on for the sake of an operation that it awaits", async () => {
  const program = fileURLToPath(new URL("./support/ending.js", import.meta.url));
  const child = spawn(process.execPath, [program, "an operation that ends later"]);
  let text = "";
  child.stdout.on("data", (data) => (text += data));
  const [exit] = await once(child, "close");
  assert.deepEqual([exit, text], [0, "ended\n"]);
});
