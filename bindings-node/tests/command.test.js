// The command `polyrank` as the package brings it: what `npx polyrank` starts.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const packageJson = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const command = fileURLToPath(new URL(`../${packageJson.bin.polyrank}`, import.meta.url));

/** Runs the command to its end. */
function polyrank(...words) {
  return spawnSync(process.execPath, [command, ...words], { encoding: "utf8", timeout: 120_000 });
}

test("all subcommands are there", () => {
  assert.equal(polyrank("--version").stdout, `polyrank ${packageJson.version}\n`);
  for (const subcommand of ["run", "store", "bench", "predict"]) {
    const { status, stdout } = polyrank(subcommand, "--help");
    assert.deepEqual([status, stdout.includes(`Usage: polyrank ${subcommand}`)], [0, true]);
  }
});

test("ranks run, and the first failure's exit code is the command's", () => {
  // The others fail when rank 0 has ended: the first failure ends the ranks that still run.
  const ended = join(mkdtempSync(join(tmpdir(), "polyrank-test-")), "ended");
  const first = `[ $RANK = 0 ] && { echo 0; : > "$0"; exit 0; }`;
  const others = `until [ -e "$0" ]; do sleep 0.01; done; exit $RANK`;
  const { status, stdout } = polyrank("run", "-n", "3", "sh", "-c", `${first}; ${others}`, ended);
  rmSync(dirname(ended), { recursive: true });
  assert.ok([1, 2].includes(status), `${status}`);
  assert.ok(stdout.includes("[rank 0] 0\n"), stdout);
});

test("ranks of the benchmark are this command again", () => {
  const few = ["--turns", "2", "--iters", "2", "--warmup", "0"];
  const { status, stdout } = polyrank("bench", "allreduce", "-n", "2", "--sizes", "4", ...few);
  assert.equal(status, 0);
  assert.match(stdout, /Out of bounds values : 0 OK/);
});
