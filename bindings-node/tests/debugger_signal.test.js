// SIGUSR1, at which Node opens its inspector: ranks in a group write what they have called, too,
// and go on, also those that do not get its port.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

/** Says when it is in the group, and reduces when it is told to. */
const RANK = `
  import { once } from "node:events";
  import * as pr from "polyrank";
  await pr.initProcessGroup({ initMethod: process.env.URL });
  console.log("joined");
  await once(process.stdin, "data");
  const sum = Float32Array.of(1);
  await pr.allReduce(sum);
  console.log(sum[0]);
  await pr.destroyProcessGroup();
  process.exit();
`;

const SKIP = process.platform === "win32" ? "Windows has no SIGUSR1" : false;
/** What Node says of its inspector where it is opened, and where the port is taken. */
const OPENED = /^Debugger listening on ws:\/\/127\.0\.0\.1:9229\//u;
const TAKEN = /^Starting inspector on 127\.0\.0\.1:9229 failed: address already in use/u;

/** The first line of these that says what came of an inspector. */
async function inspectorLine(lines) {
  for await (const text of lines) {
    if (OPENED.test(text) || TAKEN.test(text)) return text;
  }
  return null;
}

const OPTIONS = { timeout: 60_000, skip: SKIP };

test("ranks that get it write their files, and go on", OPTIONS, async () => {
  const folder = mkdtempSync(join(tmpdir(), "polyrank-signal-"));
  const ranks = [0, 1].map((rank) => {
    const URL = `file://${join(folder, "store")}?rank=${rank}&world_size=2`;
    const env = { ...process.env, POLYRANK_TRACE_DIR: folder, URL };
    const options = { env, stdio: ["pipe", "pipe", "pipe"], cwd: import.meta.dirname };
    return spawn(process.execPath, ["--input-type=module", "-e", RANK], options);
  });
  const lines = ranks.map(({ stdout }) => createInterface(stdout)[Symbol.asyncIterator]());
  const inspectors = Promise.all(ranks.map(({ stderr }) => inspectorLine(createInterface(stderr))));
  const next = () => Promise.all(lines.map(async (it) => (await it.next()).value));
  assert.deepEqual(await next(), ["joined", "joined"]);
  ranks.forEach((rank) => rank.kill("SIGUSR1"));
  for (const rank of [0, 1]) {
    while (!existsSync(join(folder, `polyrank_trace_rank_${rank}.json`))) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
  // Somebody else on this machine may have the port.
  const [one, other] = await inspectors;
  assert.ok(TAKEN.test(one) || TAKEN.test(other), `${one}; ${other}`);
  const ended = Promise.all(ranks.map((rank) => once(rank, "exit")));
  ranks.forEach((rank) => rank.stdin.end("go on\n"));
  assert.deepEqual(await next(), ["2", "2"]);
  assert.deepEqual(await ended, [[0, null], [0, null]]);
  rmSync(folder, { recursive: true });
});
