// Ranks that a program starts itself, as processes and as Workers.

import assert from "node:assert/strict";
import { spawn as start } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";
import { relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as pr from "polyrank";
import { ProcessExitedError, ProcessRaisedError, joinWorld, spawn } from "polyrank/spawn";

const RANKS = new URL("./scenarios/spawned/ranks.js", import.meta.url);
const KINDS = ["process", "worker"];

/** A folder of its own for a test; it goes when the test ends. */
async function folderOf(context) {
  const folder = await mkdtemp(`${tmpdir()}/polyrank-spawn-`);
  context.after(() => rm(folder, { recursive: true }));
  return folder;
}

/** What each file of a folder holds. */
async function written(folder) {
  const names = (await readdir(folder)).sort();
  const texts = await Promise.all(names.map((name) => readFile(`${folder}/${name}`, "utf8")));
  return Object.fromEntries(names.map((name, index) => [name, texts[index]]));
}

for (const kind of KINDS) {
  for (const nprocs of [1, 2, 3, 5]) {
    test(`${nprocs} of kind ${kind} meet without settings`, async (context) => {
      const folder = await folderOf(context);
      const given = await spawn(RANKS, { args: [folder, 2], nprocs, kind });
      assert.equal(given, undefined);
      const sum = (2 * (nprocs * (nprocs + 1))) / 2;
      const ranks = Array.from({ length: nprocs }, (_, rank) => rank);
      const expected = ranks.map((rank) => [rank, `${sum} ${rank} ${nprocs} ${rank} ${rank}`]);
      assert.deepEqual(await written(folder), Object.fromEntries(expected));
    });
  }
}

test("initProcessGroup() needs nothing else in a process", async (context) => {
  const folder = await folderOf(context);
  await spawn(RANKS, { name: "meets", args: [folder], nprocs: 2 });
  assert.deepEqual(await written(folder), { 0: "0 of 2", 1: "1 of 2" });
});

for (const kind of KINDS) {
  for (const how of ["throw", "long", "reject", "stray", "forgotten", "exit"]) {
    test(`the failure of one of kind ${kind} ends all and is told: ${how}`, async () => {
      const options = { name: "fails", args: [how], nprocs: 3, kind, join: false };
      const context = await spawn(RANKS, options);
      const pids = context.pids();
      const error = await context.join().then(assert.fail, (error) => error);
      if (how === "exit") {
        assert.ok(error instanceof ProcessExitedError, String(error));
        assert.deepEqual([error.exitCode, error.signal], [3, null]);
        assert.match(error.message, /^rank 1 \((process|Worker) \d+\) ended with exit code 3$/u);
      } else {
        assert.ok(error instanceof ProcessRaisedError, String(error));
        const start = /^rank 1 \((process|Worker) \d+\) raised:\nRangeError: /u;
        assert.match(error.message, start);
        assert.match(error.message, how === "long" ? /xxx/u : /no such weights[^]*ranks\.js/u);
      }
      assert.equal(error.name, error.constructor.name);
      assert.deepEqual([error.rank, error.pid], [1, pids[1]], "not one that it has left alone");
      if (kind === "process") {
        for (const child of context.processes) {
          assert.ok(child.exitCode !== null || child.signalCode !== null);
        }
      }
      await assert.rejects(context.join(), error, "again");
    });
  }
}

test("a process that a signal ends is told", async () => {
  const killed = spawn(RANKS, { name: "fails", args: ["kill"], nprocs: 3 });
  const error = await killed.then(assert.fail, (error) => error);
  assert.ok(error instanceof ProcessExitedError, String(error));
  assert.deepEqual([error.rank, error.exitCode, error.signal], [1, null, "SIGKILL"]);
  assert.equal(error.message, `rank 1 (process ${error.pid}) was ended by SIGKILL`);
});

test("what does not end is killed", async (context) => {
  const folder = await folderOf(context);
  const ranks = await spawn(RANKS, { name: "stubborn", args: [folder], nprocs: 2, join: false });
  await assert.rejects(ranks.join({ gracePeriod: 50 }), /^ProcessRaisedError: rank 1 .*\n.*over/u);
  assert.equal(ranks.processes[0].signalCode, "SIGKILL");
});

for (const kind of KINDS) {
  test(`a join may end before ranks of kind ${kind}`, async (context) => {
    const folder = await folderOf(context);
    const args = [`${folder}/go on`];
    const ranks = await spawn(RANKS, { name: "waits", args, nprocs: 2, kind, join: false });
    assert.equal(new Set(ranks.pids()).size, 2);
    assert.equal(await ranks.join({ timeout: 50 }), false);
    await writeFile(args[0], "");
    assert.equal(await ranks.join(), true);
    assert.equal(await ranks.join(), true, "again");
  });

  test(`ranks of kind ${kind} can be stopped`, async (context) => {
    const folder = await folderOf(context);
    const args = [`${folder}/never`];
    const ranks = await spawn(RANKS, { name: "waits", args, nprocs: 2, kind, join: false });
    await ranks.stop();
    await assert.rejects(ranks.join(), ProcessExitedError);
  });
}

test("a module is found by its URL and by its path", async (context) => {
  const folder = await folderOf(context);
  const path = fileURLToPath(RANKS);
  for (const entry of [RANKS, RANKS.href, path, relative(process.cwd(), path)]) {
    for (const kind of KINDS) {
      await spawn(entry, { name: "isWorker", args: [folder], kind });
      assert.deepEqual(await written(folder), { 0: String(kind === "worker") });
    }
  }
});

test("a module of CommonJS will do", async (context) => {
  const folder = await folderOf(context);
  const text = `exports.default = (rank, path) => require("fs").writeFileSync(path, "here");`;
  await writeFile(`${folder}/ranks.cjs`, text);
  await spawn(`${folder}/ranks.cjs`, { args: [`${folder}/told`] });
  assert.equal(await readFile(`${folder}/told`, "utf8"), "here");
});

test("what cannot be done is refused", async () => {
  const refused = (entry, options, message) => {
    return assert.rejects(spawn(entry, options), { name: "InvalidArgumentError", message });
  };
  await refused(RANKS, { nprocs: 0 }, /'nprocs' is 0: at least one rank is expected/u);
  await refused(RANKS, { kind: "thread" }, /'kind' must be one of process, worker, not thread/u);
  await refused("./nowhere.js", {}, /there is no module \/.*\/nowhere\.js/u);
  for (const kind of KINDS) {
    const options = { args: [() => 1], kind };
    await refused(RANKS, options, /'args' cannot be sent to another .*could not be cloned/u);
    const missing = { name: "summs", nprocs: 2, kind };
    const found = /exports no function 'summs'; it exports default, .*waits/u;
    await assert.rejects(spawn(RANKS, missing), found);
  }
  const { InvalidTypeError } = pr;
  await assert.rejects(spawn(RANKS, { nproc: 2 }), InvalidTypeError);
  await assert.rejects(spawn(RANKS, { args: "abc" }), InvalidTypeError);
  await assert.rejects(spawn(() => 1), InvalidTypeError);
});

test("joinWorld() outside of such a rank is initProcessGroup()", async () => {
  const group = await joinWorld({ store: new pr.HashStore(), rank: 0, worldSize: 1 });
  assert.equal(pr.isInitialized(), true);
  await pr.destroyProcessGroup(group);
});

for (const [kind, options] of [
  ["that are waited for", { name: "stays", nprocs: 2 }],
  ["that are not", { name: "stays", nprocs: 2, join: false, daemon: true }],
]) {
  test(`processes ${kind} end with who started them`, async () => {
    const program = `
      import { spawn } from "polyrank/spawn";
      await spawn(${JSON.stringify(RANKS.href)}, ${JSON.stringify(options)});
      setInterval(() => {}, 1000);
    `;
    const words = ["--input-type=module", "--eval", program];
    const stdio = ["ignore", "pipe", "inherit"];
    const parent = start(process.execPath, words, { cwd: import.meta.dirname, stdio });
    const pids = [];
    for await (const line of createInterface({ input: parent.stdout })) {
      pids.push(Number(line));
      if (pids.length === 2) parent.kill("SIGKILL");
    }
    // They hold its standard output open until they end.
    assert.equal(new Set(pids).size, 2);
    if (parent.signalCode === null) await once(parent, "exit");
    assert.equal(parent.signalCode, "SIGKILL");
  });
}

test("a program may end before processes that are its daemons", async () => {
  const options = { name: "stays", nprocs: 2, join: false, daemon: true };
  const program = `
    import { spawn } from "polyrank/spawn";
    await spawn(${JSON.stringify(RANKS.href)}, ${JSON.stringify(options)});
  `;
  const words = ["--input-type=module", "--eval", program];
  const parent = start(process.execPath, words, { cwd: import.meta.dirname, stdio: "inherit" });
  assert.deepEqual(await once(parent, "exit"), [0, null]);
});
