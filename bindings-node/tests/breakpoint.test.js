// One rank stops in the debugger, and the others wait: Node's own debugger, and real processes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import * as pr from "polyrank";

const entry = fileURLToPath(import.meta.resolve("polyrank"));

const PROGRAM = `
import * as pr from ${JSON.stringify(entry)};
await pr.initProcessGroup();
const rank = pr.getRank();
let secret = rank * 100 + 7;
await pr.breakpoint({ rank: pr.getWorldSize() - 1 }).catch((error) => {
  console.log(\`\${error.name} of rank \${error.rank}\`);
  process.exit(0);
});
console.log(\`rank \${rank} went on with \${secret}\`);
await pr.destroyProcessGroup();
`;

/** A process, what it has printed, and waiting for that. */
class Running {
  shown = "";
  #changed = () => {};

  constructor(words, env = {}) {
    this.process = spawn(process.execPath, words, { env: { ...process.env, ...env } });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (text) => {
        this.shown += text;
        this.#changed();
      });
    }
    this.ended = new Promise((resolve) => {
      this.process.on("close", (code, signal) => {
        this.isOver = true;
        this.#changed();
        resolve(signal ?? code);
      });
    });
  }

  /** What `pattern` finds in what it prints, sooner or later. */
  async until(pattern) {
    for (;;) {
      const found = pattern.exec(this.shown);
      if (found !== null) return found;
      assert.ok(!this.isOver, `it ended without ${pattern}:\n${this.shown}`);
      await new Promise((resolve) => (this.#changed = resolve));
    }
  }

  type(text) {
    this.process.stdin.write(`${text}\n`);
  }
}

/** Starts ranks of `PROGRAM`, calls `use` with them, and ends what is left of them. */
async function job(size, use, env = {}) {
  const folder = mkdtempSync(join(tmpdir(), "polyrank-test-"));
  const program = join(folder, "train.mjs");
  writeFileSync(program, PROGRAM);
  const options = { isMaster: true, waitForWorkers: false };
  const store = await pr.TCPStore.connect("127.0.0.1", 0, options);
  const common = {
    WORLD_SIZE: `${size}`,
    MASTER_ADDR: "127.0.0.1",
    MASTER_PORT: `${store.port}`,
    TORCHELASTIC_USE_AGENT_STORE: "True",
    ...env,
  };
  const start = (_, rank) => new Running([program], { ...common, RANK: `${rank}` });
  const ranks = Array.from({ length: size }, start);
  try {
    await use(ranks, program);
  } finally {
    for (const rank of ranks) rank.process.kill("SIGKILL");
    rmSync(dirname(program), { recursive: true });
  }
}

for (const size of [1, 2, 3, 5]) {
  test(`one of ${size} ranks stops in the debugger, and the others wait`, async () => {
    await job(size, async (ranks) => {
      const held = ranks[size - 1];
      const at = `rank ${size - 1} is at its breakpoint, .*train\\.mjs:6, in process \\d+\\.`;
      const [, address] = await held.until(new RegExp(`${at} Debugger at ([\\d.:]+)/`, "u"));
      const debug = new Running(["inspect", address]);
      await debug.until(/break in/u);
      debug.type("bt");
      await debug.until(/train\.mjs:6/u);
      assert.ok(ranks.every((rank) => !rank.shown.includes("went on")));
      debug.type("c");
      for (const [rank, running] of ranks.entries()) {
        await running.until(new RegExp(`rank ${rank} went on with ${rank * 100 + 7}\\n`, "u"));
      }
      debug.process.kill();
      await debug.ended;
      for (const rank of ranks) assert.equal(await rank.ended, 0, rank.shown);
    });
  });
}

test("when the held rank is killed, the others learn it", async () => {
  await job(3, async (ranks) => {
    await ranks[2].until(/is at its breakpoint/u);
    ranks[2].process.kill("SIGKILL");
    for (const rank of ranks.slice(0, 2)) await rank.until(/RankFailedError of rank 2/u);
  });
});

test("who waits is told that the rank is at its breakpoint", async () => {
  await job(2, async (ranks) => {
    await ranks[0].until(/rank 0 has waited for .*; rank 1 is at its breakpoint, .*train\.mjs:6/u);
  }, { POLYRANK_STALL_REPORT: "0.5" });
});

test("wrong arguments are refused, and skipped calls do nothing", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { timeout: 5000 });
  await assert.rejects(async () => pr.breakpoint({ rank: 1, group }), pr.RankNotInGroupError);
  await assert.rejects(async () => pr.breakpoint({ rnak: 1, group }), pr.InvalidTypeError);
  await assert.rejects(async () => pr.breakpoint({ rank: "1", group }), pr.InvalidTypeError);
  for (let step = 0; step < 3; step += 1) await pr.breakpoint({ skip: 3, group });
  await pr.breakpoint({ group: pr.NON_GROUP_MEMBER });
  assert.equal(group.timeout, 5000);
  await group.shutdown();
  await nextTurn();
});
