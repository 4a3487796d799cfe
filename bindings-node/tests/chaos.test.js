// Faults on purpose, as the environment asks for them: the core's, so here only that they come.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const entry = fileURLToPath(import.meta.resolve("polyrank"));

const PROGRAM = `
  import * as pr from ${JSON.stringify(entry)};
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "alone" });
  for (let step = 1; step <= 5; step += 1) {
    await group.allreduce(new Float32Array([1]));
    console.log("done " + step);
  }
  await group.shutdown();
`;

function ran(chaos) {
  const env = { ...process.env, POLYRANK_CHAOS: chaos };
  const words = ["--input-type=module", "--eval", PROGRAM];
  return spawnSync(process.execPath, words, { env, encoding: "utf8" });
}

test("a rank is killed before its operation", () => {
  const { signal, stdout, stderr } = ran("kill=0#3");
  assert.deepEqual([signal, stdout], ["SIGKILL", "done 1\ndone 2\n"], stderr);
  assert.match(stderr, /rank 0 kills itself before its operation 3, ALLREDUCE of alone/u);
  assert.match(stderr, /POLYRANK_CHAOS asks for faults: rank 0 is killed before its operation 3/u);
});

test("others are not", () => {
  const { status, stdout } = ran("kill=1#3,kill=0#6,delay=1ms@0");
  assert.deepEqual([status, stdout.split("\n").length], [0, 6]);
});

test("what is not a fault is refused", () => {
  const { status, stderr } = ran("delay=5@0");
  assert.notEqual(status, 0);
  const refused = /InvalidArgumentError.*'delay=5@0' is not a fault; expected delay=TIME@RANK/u;
  assert.match(stderr, refused);
});
