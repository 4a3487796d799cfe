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

/** How a program ends that Node evaluates with these arguments. */
async function ended(program, words = [], options = []) {
  const all = [...options, "--input-type", "module", "--eval", program, ...words];
  const stdio = ["ignore", "inherit", "inherit"];
  return once(start(process.execPath, all, { cwd: import.meta.dirname, stdio }), "exit");
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

test("the cause is the rank that threw, though others have to be killed", async (context) => {
  const folder = await folderOf(context);
  const ranks = await spawn(RANKS, { name: "stubborn", args: [folder], nprocs: 3, join: false });
  const both = [ranks.join({ gracePeriod: 50 }), ranks.join({ gracePeriod: 10_000 })];
  for (const joined of both) {
    await assert.rejects(joined, /^ProcessRaisedError: rank 1 .*\n.*over/u);
  }
  const ends = ranks.processes.map(({ signalCode }) => signalCode);
  assert.deepEqual(ends, ["SIGKILL", null, "SIGTERM"]);
});

for (const kind of KINDS) {
  test(`a rank of kind ${kind} whose function never returns has failed`, async () => {
    const error = await spawn(RANKS, { name: "unsettled", kind }).then(assert.fail, (it) => it);
    assert.ok(error instanceof ProcessExitedError, String(error));
    assert.equal(error.exitCode, 13);
    assert.match(error.message, /waits for what nothing can settle/u);
  });

  test(`ranks of kind ${kind} are waited for though they are daemons`, async (context) => {
    const folder = await folderOf(context);
    const options = { name: "isWorker", args: [folder], nprocs: 2, kind, daemon: true };
    const program = `
      import { spawn } from "polyrank/spawn";
      await spawn(${JSON.stringify(RANKS.href)}, ${JSON.stringify(options)});
    `;
    assert.deepEqual(await ended(program), [0, null]);
    assert.deepEqual(Object.keys(await written(folder)), ["0", "1"]);
  });

  test(`ranks of kind ${kind} have the arguments of the program`, async (context) => {
    const folder = await folderOf(context);
    const options = { name: "tellsArguments", args: [folder], kind };
    const program = `
      import { spawn } from "polyrank/spawn";
      await spawn(${JSON.stringify(RANKS.href)}, ${JSON.stringify(options)});
    `;
    assert.deepEqual(await ended(program, ["--", "--lr", "3"]), [0, null]);
    assert.deepEqual(await written(folder), { 0: "--lr 3" });
  });
}

test("the store serves though nobody keeps the context", async (context) => {
  const folder = await folderOf(context);
  const options = { name: "meetsLate", args: [folder], nprocs: 2, join: false };
  const program = `
    import { existsSync } from "node:fs";
    import { setTimeout } from "node:timers/promises";
    import { spawn } from "polyrank/spawn";
    await spawn(${JSON.stringify(RANKS.href)}, ${JSON.stringify(options)});
    const here = (rank) => existsSync(${JSON.stringify(folder)} + "/here " + rank);
    while (!here(0) || !here(1)) await setTimeout(1);
    globalThis.gc();
    // What was collected is released between turns of the event loop.
    await setTimeout(1);
    globalThis.gc();
    (await import("node:fs")).writeFileSync(${JSON.stringify(folder)} + "/go on", "");
  `;
  assert.deepEqual(await ended(program, [], ["--expose-gc"]), [0, null]);
  const { 0: first, 1: second } = await written(folder);
  assert.deepEqual([first, second], ["0 of 2", "1 of 2"]);
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
    const error = await ranks.join().then(assert.fail, (error) => error);
    assert.ok(error instanceof ProcessExitedError, String(error));
    assert.equal(error.signal, kind === "process" ? "SIGTERM" : null);
    await ranks.stop();
    for (const options of [50, { timeuot: 10 }, { timeout: "1" }]) {
      await assert.rejects(ranks.join(options), pr.InvalidTypeError);
    }
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

test("of a module of CommonJS, exports are found that Node does not list", async (context) => {
  const folder = await folderOf(context);
  const text = `module.exports = Object.fromEntries([["train", (rank, path) =>
    require("fs").writeFileSync(path, "here")]]);`;
  await writeFile(`${folder}/ranks.cjs`, text);
  await spawn(`${folder}/ranks.cjs`, { name: "train", args: [`${folder}/told`] });
  assert.equal(await readFile(`${folder}/told`, "utf8"), "here");
});

test("what cannot be done is refused", async () => {
  const refused = (entry, options, message) => {
    return assert.rejects(spawn(entry, options), { name: "InvalidArgumentError", message });
  };
  for (const nprocs of [0, -1, 2.5, NaN]) {
    const expected = `spawn(): 'nprocs' must be a whole number from 1, not ${nprocs}`;
    await refused(RANKS, { nprocs }, expected);
  }
  await refused("https://example.org/ranks.js", {}, /'entry' is https:.*a path or the URL of a/u);
  await refused(tmpdir(), {}, /no such file: /u);
  await refused(RANKS, { kind: "thread" }, /'kind' must be one of process, worker, not thread/u);
  await refused("./nowhere.js", {}, /no such file: \/.*\/nowhere\.js/u);
  for (const kind of KINDS) {
    const options = { args: [() => 1], kind };
    await refused(RANKS, options, /'args' cannot be sent to another .*could not be cloned/u);
    const missing = { name: "summs", nprocs: 2, kind };
    const found = /exports no function 'summs'; it exports default, .*waits/u;
    await assert.rejects(spawn(RANKS, missing), found);
  }
  const { InvalidTypeError } = pr;
  for (const options of [{ nproc: 2 }, { nprocs: "2" }, { name: Symbol("x") }, { join: "no" }, 5]) {
    await assert.rejects(spawn(RANKS, options), InvalidTypeError);
  }
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
