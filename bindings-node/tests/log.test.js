// What is logged, and what arrives of it in JavaScript.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";

import * as pr from "polyrank";
import { setLogger } from "polyrank/log";

const GROUP = `
  import * as pr from "polyrank";
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "told" });
  await group.shutdown();
`;

/** What a program writes to stderr that is run with these variables. */
function ran(program, variables = {}) {
  const env = { PATH: process.env.PATH, POLYRANK_COPY_PRICES: "off", ...variables };
  const words = ["--input-type=module", "--eval", program];
  const options = { cwd: import.meta.dirname, env, encoding: "utf8" };
  const ended = spawnSync(process.execPath, words, options);
  assert.equal(ended.status, 0, ended.stderr);
  return ended.stderr;
}

test("a logger gets what was chosen at the start", async () => {
  const lines = [];
  const method = (name) => [name, (text) => lines.push([name, text])];
  const logger = Object.fromEntries(["error", "warn", "info", "debug"].map(method));
  setLogger(logger, { level: "info" });
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "told" });
  // Lines come on this thread, one by one.
  const isTold = () => lines.some(([, text]) => text.includes("algorithms: allreduce: "));
  while (!isTold()) await new Promise(setImmediate);
  await group.shutdown();
  setLogger(null);
  for (const [level, text] of lines) {
    assert.equal(level, "info");
    assert.match(text, /^polyrank \(group, rank 0, group told\): /u);
  }
});

test("the environment decides what standard error gets", () => {
  const start = "polyrank: info group: rank 0 of group told: algorithms: ";
  assert.equal(ran(GROUP), "");
  assert.ok(ran(GROUP, { NODE_DEBUG: "polyrank" }).includes(start));
  assert.ok(ran(GROUP, { NODE_DEBUG: "http,polyrank" }).includes(start));
  assert.ok(ran(GROUP, { POLYRANK_LOG: "info" }).includes(start));
  assert.equal(ran(GROUP, { POLYRANK_LOG: "off", NODE_DEBUG: "polyrank" }), "");
  const json = ran(GROUP, { POLYRANK_LOG: "info", POLYRANK_LOG_FORMAT: "json" });
  for (const line of json.trim().split("\n")) {
    const { level, target, rank, group } = JSON.parse(line);
    assert.deepEqual([level, target, rank, group], ["INFO", "polyrank::group", 0, "told"]);
  }
});

// A rank that waits, on a thread that takes no line meanwhile, or does.
const stalled = (meanwhile) => `
  import * as pr from "polyrank";
  import { setLogger } from "polyrank/log";
  let told = 0;
  const warn = (text) => { told += 1; console.error("LOGGED " + text); };
  setLogger({ error() {}, warn, info() {}, debug() {} });
  const store = new pr.HashStore();
  const groups = await Promise.all([0, 1].map((rank) => pr.ProcessGroup.join(store, rank, 2)));
  const waiting = groups[0].barrier();
  ${meanwhile}
  await Promise.all([waiting, groups[1].barrier()]);
  while (told === 0) await new Promise(setImmediate);
  groups.forEach((group) => group.abort());
`;

test("warnings come to the logger, or to standard error while its thread is busy", () => {
  const variables = { POLYRANK_STALL_REPORT: "0.2" };
  const heard = ran(stalled("while (told === 0) await new Promise(setImmediate);"), variables);
  assert.match(heard, /^LOGGED polyrank \(stall\): barrier #1 of group /u);
  const busy = "for (const end = Date.now() + 4000; Date.now() < end;);";
  assert.match(ran(stalled(busy), variables), /^polyrank: barrier #1 of group .*\n(.*\n)*LOGGED /u);
});

test("a logger that throws loses no warning", () => {
  const throws = stalled("while (told === 0) await new Promise(setImmediate);").replace(
    'console.error("LOGGED " + text)',
    'throw new Error("full")',
  );
  assert.match(ran(throws, { POLYRANK_STALL_REPORT: "0.2" }), /^polyrank: barrier #1 of group /u);
});

test("a logger that fails later loses no warning and ends no program", () => {
  const fails = stalled("while (told === 0) await new Promise(setImmediate);").replace(
    'console.error("LOGGED " + text)',
    'return Promise.reject(new Error("remote sink down"))',
  );
  assert.match(ran(fails, { POLYRANK_STALL_REPORT: "0.2" }), /^polyrank: barrier #1 of group /u);
});

test("objects that are not loggers are refused", () => {
  const lacks = { name: "InvalidTypeError", message: /has no warn/u };
  assert.throws(() => setLogger({ error() {} }), lacks);
  const misspelt = /^setLogger\(\): there is no argument 'levle'; there are level$/u;
  assert.throws(() => setLogger(console, { levle: "info" }), { message: misspelt });
  assert.throws(() => setLogger(console, { level: "loud" }), {
    name: "InvalidArgumentError",
    message: "setLogger(): 'level' must be one of off, error, warn, info, debug, trace, not loud",
  });
});

test("debug levels are numbers, and may be given by name", () => {
  assert.equal(pr.getDebugLevel(), pr.DebugLevel.OFF);
  pr.setDebugLevel(pr.DebugLevel.DETAIL);
  assert.equal(pr.getDebugLevel(), 2);
  pr.setDebugLevel("INFO");
  assert.equal(pr.getDebugLevel(), 1);
  assert.throws(() => pr.setDebugLevel(3), { name: "InvalidTypeError", message: /'OFF' \(0\)/u });
  pr.setDebugLevelFromEnv();
  assert.equal(pr.getDebugLevel(), 0);
});
