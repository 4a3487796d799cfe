// What all ranks have called lately, in one file.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import * as pr from "polyrank";

test("a dump has what was called, and its path is given", async () => {
  const folder = mkdtempSync(join(tmpdir(), "polyrank-dump-"));
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "dumped" });
  await group.allreduce(new Float64Array(5));
  const path = join(folder, "trace.json");
  assert.equal(await group.dump(path), path);
  const trace = JSON.parse(readFileSync(path, "utf8"));
  assert.deepEqual([trace.missing, trace.ranks.length], [[], 1]);
  const entries = trace.ranks[0].entries.filter((entry) => entry.process_group[0] === "dumped");
  const [{ name, state, input_sizes: sizes, input_dtypes: dtypes }] = entries;
  assert.deepEqual([name, state, sizes, dtypes], ["allreduce", "completed", [[5]], ["Double"]]);
  await assert.rejects(group.dump(join(path, "below.json")), /dump: cannot write/u);
  await group.shutdown();
  rmSync(folder, { recursive: true });
});
