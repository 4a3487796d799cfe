// Nobody waits in silence in a browser: tabs of Chromium and a rank of Node's package in one group
// say of one another who waits for whom, and where the others stand.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { promisify } from "node:util";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { command, startStore } from "./store.mjs";

// Before the native half is loaded, which reads it once.
process.env.POLYRANK_STALL_REPORT = "0.5";
const pr = await import("../../bindings-node/js/index.js");
const { setLogger } = await import("../../bindings-node/js/log.js");

const LIMIT_MS = 500;
/** Of tests, which wait for lines. */
const LIMITED = { timeout: 60_000 };
const LAYER = "allreduce 'layer' #1 of group default_pg";
const NEVER_MS = 0;

let server;
let store;
let browser;
/** What each rank has said, by rank, and who waits for more. */
let said;
let listeners;

before(async () => {
  [server, browser] = await Promise.all([serve(), launchChromium()]);
});

after(async () => {
  await browser?.close();
  server?.close();
});

beforeEach(async () => {
  [said, listeners] = [new Map(), new Set()];
  store = await startStore();
});

afterEach(async () => {
  // Of a test that has failed.
  await Promise.all(browser.contexts().map((context) => context.close()));
  if (pr.isInitialized()) await pr.abortProcessGroup();
  store?.stop();
});

function hear(rank, text) {
  said.set(rank, [...(said.get(rank) ?? []), text]);
  listeners.forEach((look) => look());
}

/** The first line of a rank that matches, when it has said such. */
function line(rank, pattern) {
  return new Promise((resolve) => {
    const look = () => {
      const found = (said.get(rank) ?? []).find((text) => pattern.test(text));
      if (found === undefined) return;
      listeners.delete(look);
      resolve(found);
    };
    listeners.add(look);
    look();
  });
}

/** A tab that begins to join as a rank, and reports what waits for `limit` ms. */
async function openTab(rank, size, limit) {
  const page = await browser.newPage();
  page.on("console", (message) => hear(rank, message.text()));
  await page.goto(server.origin);
  const url = `${store.url}/?rank=${rank}&world_size=${size}`;
  await page.evaluate(`Promise.all([import("polyrank-web"), import("/bindings-wasm/js/log.js")])
    .then(([pr, { setStallReport }]) => {
      setStallReport(${limit});
      const joined = pr.initProcessGroup({ initMethod: "${url}" });
      globalThis.here = joined.then((group) => ({ pr, group }));
    })`);
  return page;
}

/** What `act({ pr, group })` gives in a tab. */
function run(page, act) {
  return page.evaluate(`here.then(${act})`);
}

async function joinNatively(rank, size) {
  const [tcp] = store.urls;
  const method = (name) => [name, (text) => hear(rank, text)];
  setLogger(Object.fromEntries(["error", "warn", "info", "debug"].map(method)));
  return pr.initProcessGroup({ initMethod: `${tcp}?rank=${rank}&world_size=${size}` });
}

/** A group of tabs and, as its last rank, this process. */
async function ranks(size, limit) {
  const tabs = Array.from({ length: size - 1 }, (_, rank) => openTab(rank, size, limit));
  const [pages, group] = await Promise.all([Promise.all(tabs), joinNatively(size - 1, size)]);
  return { pages, group };
}

async function leave(pages) {
  const left = pages.map((page) => run(page, "({ pr }) => pr.destroyProcessGroup()"));
  await Promise.all([pr.destroyProcessGroup(), ...left]);
  setLogger(null);
  await Promise.all(pages.map((page) => page.close()));
}

// The larger first: a process takes itself for each rank that it was in groups whose objects it
// still has, and here it is the last of each.
for (const size of [3, 2]) {
  const last = size - 1;

  test(`${last} of ${size} ranks, in tabs, wait for a native one`, LIMITED, async () => {
    const { pages, group } = await ranks(size, LIMIT_MS);
    const act = `({ pr, group }) => pr.recordComm("layer", () => {
      return group.allreduce(Float32Array.of(1)).then(() => null);
    })`;
    const waiting = pages.map((page) => run(page, act));
    const who = size === 2 ? "rank 0 has" : "ranks 0, 1 have";
    const text = `^polyrank: ${LAYER}: ${who} waited for [\\d.]+ s; ` +
      `rank ${last} has called no collective of group default_pg`;
    await Promise.all(pages.map((_, rank) => line(rank, new RegExp(text, "u"))));
    await group.allreduce(Float32Array.of(1));
    await Promise.all(waiting);
    const over = new RegExp(`^polyrank: ${LAYER} waits no longer, after [\\d.]+ s$`, "u");
    await Promise.all(pages.map((_, rank) => line(rank, over)));
    await leave(pages);
  });

  test(`a native rank of ${size} says what tabs are in`, LIMITED, async () => {
    const { pages, group } = await ranks(size, NEVER_MS);
    const waiting = group.barrier();
    const idle = size === 2 ? "rank 0 has" : "ranks 0, 1 have";
    const silent = `: barrier #1 of group default_pg: rank ${last} has waited for [\\d.]+ s; ` +
      `${idle} called no collective of group default_pg`;
    await line(last, new RegExp(silent, "u"));
    // It says so again, after twice as long, with what has changed.
    const received = run(pages[0], `({ group }) => {
      return group.recv([new Float32Array(1)], ${last}, 5).then(() => null);
    }`);
    const text = `; rank 0 is in recv from rank ${last} \\(tag 5\\) of group default_pg for `;
    await line(last, new RegExp(text, "u"));
    await group.send([Float32Array.of(1)], 0, 5);
    await received;
    const come = pages.map((page) => run(page, "({ group }) => group.barrier()"));
    await Promise.all([waiting, ...come]);
    await line(last, /: barrier #1 of group default_pg waits no longer/u);
    // Tabs that report nothing answer all the same.
    pages.forEach((_, rank) => assert.deepEqual(said.get(rank) ?? [], []));
    await leave(pages);
  });
}

test("a tab that waits to join says who is missing", LIMITED, async () => {
  const page = await openTab(0, 2, LIMIT_MS);
  await line(0, /^polyrank: group 'default_pg': rank 1 of 2 has not come to the rendezvous; /u);
  await joinNatively(1, 2);
  await line(0, /^polyrank: the rendezvous waits no longer, after/u);
  await leave([page]);
});

/** What makes a group of all ranks of this description, in a tab and here. */
const MAKE = (description) => `pr.newGroup(null, { groupDesc: "${description}" })`;

function makeNatively(description) {
  return pr.newGroup(null, { groupDesc: description });
}

test("a tab and a native rank say the same of groups with descriptions", LIMITED, async () => {
  const { pages: [page] } = await ranks(2, LIMIT_MS);
  const groups = ["tp", "dp"].map(makeNatively);
  await run(page, `async ({ pr }) => {
    globalThis.groups = await Promise.all([${MAKE("tp")}, ${MAKE("dp")}]);
  }`);
  const [tp, dp] = await Promise.all(groups);
  const reduced = (at) => run(page, `() => {
    return groups[${at}].allreduce(Float32Array.of(1)).then(() => null);
  }`);
  const [there, here] = [reduced(0), dp.allreduce(Float32Array.of(1))];
  const said = (rank, [own, other]) => {
    return new RegExp(
      `^[^;]*: allreduce #1 of group ${own}: rank ${rank} has waited for [\\d.]+ s; ` +
        `rank ${1 - rank} is in allreduce #1 of group ${other} for [\\d.]+ s$`,
      "u",
    );
  };
  await Promise.all([line(0, said(0, ["tp", "dp"])), line(1, said(1, ["dp", "tp"]))]);
  await Promise.all([there, here, reduced(1), tp.allreduce(Float32Array.of(1))]);
  await leave([page]);
});

const MAKES = {
  new_group: MAKE("tp"),
  split_group: 'group.splitGroup([0, 1], { groupDesc: "tp" })',
};

for (const [name, make] of Object.entries(MAKES)) {
  test(`a tab says that it waits in ${name} for a native rank`, LIMITED, async () => {
    const { pages: [page], group } = await ranks(2, LIMIT_MS);
    const made = run(page, `({ pr, group }) => ${make}.then(() => null)`);
    const call = `${name} of group tp \\(ranks 0, 1\\)`;
    const late = `^polyrank: ${call}: rank 1 has not come to the rendezvous; waited for [\\d.]+ s$`;
    await line(0, new RegExp(late, "u"));
    const barrier = group.barrier();
    const there = `; rank 0 is in ${call} for [\\d.]+ s$`;
    await line(1, new RegExp(there, "u"));
    const [tcp] = store.urls;
    const shown = await command(["top", tcp.replace("tcp://", ""), "--once"]);
    assert.match(shown, new RegExp(`^ +0 +browser +0 +${name} of `, "mu"));
    await Promise.all([made, new Function("pr", "group", `return ${make}`)(pr, group)]);
    await line(0, new RegExp(`^polyrank: ${call} waits no longer, after [\\d.]+ s$`, "u"));
    await Promise.all([barrier, run(page, "({ group }) => group.barrier()")]);
    await leave([page]);
  });
}

/** A rank in Python, which waits until a key of the store is there. */
const PYTHON = `
import sys
import polyrank as pr

pr.init_process_group(init_method=sys.argv[1])
store = pr.default_group().get_group_store()
store.wait(["the tab has said it"])  # line 7
pr.barrier()
pr.destroy_process_group()
`;
const { POLYRANK_PYTHON: INTERPRETER } = process.env;
const SKIP = INTERPRETER ? false : "POLYRANK_PYTHON names no interpreter that has polyrank";

test("a tab says where a rank in Python is", { ...LIMITED, skip: SKIP }, async () => {
  const [tcp] = store.urls;
  const words = ["-c", PYTHON, `${tcp}?rank=1&world_size=2`];
  const ended = promisify(execFile)(INTERPRETER, words, { timeout: 50_000 });
  const page = await openTab(0, 2, LIMIT_MS);
  const waiting = run(page, "({ group }) => group.barrier()");
  const text = "^polyrank: barrier #1 of group default_pg: rank 0 has waited for [\\d.]+ s; " +
    "rank 1 has called no collective of group default_pg, and is at <string>:7 in <module>$";
  await line(0, new RegExp(text, "u"));
  await run(page, `async ({ group }) => {
    const store = await group.getGroupStore();
    await store.set("the tab has said it", new Uint8Array(1));
  }`);
  await waiting;
  await run(page, "({ pr }) => pr.destroyProcessGroup()");
  await ended;
});

/** Where a tab stands, as it tells when it is asked. */
async function placeOf(group, rank) {
  const keys = await group.getGroupStore();
  const question = await keys.add("watch/asked", 1);
  for (;;) {
    await keys.wait([`watch/place/${rank}`]);
    const place = JSON.parse(new TextDecoder().decode(await keys.get(`watch/place/${rank}`)));
    if (place.answers >= question) return place.groups.find((it) => it.group === group.groupName);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** The same as soon as the first tab is in something that is not over. */
async function untilOpen(group) {
  for (;;) {
    const place = await placeOf(group, 0);
    if (place.open.length > 0) return place;
  }
}

/** What is called in a tab and by the native rank, and what the tab tells while it waits. */
const CALLS = {
  "group.allreduce(Float32Array.of(1))": ["allreduce"],
  "pr.allReduce(Float32Array.of(1))": ["all_reduce"],
  "pr.recordComm('x', () => pr.allReduce(Float32Array.of(1)))": ["all_reduce 'x'"],
  "group.allreduce(new Float64Array(1_000_000))": ["allreduce"],
  "group.prepareAllreduce(Float32Array.of(1)).start()": ["allreduce"],
  "group.barrier()": ["barrier"],
  "pr.allGatherObject([null, null], { a: 1 })": ["all_gather_object"],
  "pr.broadcastObjectList([group.rank()], 1)": ["broadcast_object_list"],
  "pr.gatherObject(1, group.rank() === 1 ? [0, 0] : null, 1)": ["gather_object"],
  "pr.scatterObjectList([null], group.rank() === 1 ? [1, 2] : null, 1)": ["scatter_object_list"],
  "group.createCart([2])": ["create_cart"],
  "group.createDistGraphAdjacent([1 - group.rank()], [1 - group.rank()])": [
    "create_dist_graph_adjacent",
  ],
};

test("the numbers of a tab are those of a native rank", { timeout: 120_000 }, async () => {
  const { pages: [page], group } = await ranks(2, NEVER_MS);
  const inBoth = async (text, look = () => {}) => {
    const there = run(page, `async ({ pr, group }) => {
      await ${text};
      return null;
    }`);
    await look();
    await Promise.all([there, new Function("pr", "group", `return ${text}`)(pr, group)]);
  };
  // An operation of the native rank has the next number, whatever was called before.
  const next = async () => {
    const tensor = Float32Array.of(1);
    const there = run(page, "({ group }) => group.allreduce(Float32Array.of(1)).then(() => null)");
    const work = group.allreduce(tensor);
    await Promise.all([there, work]);
    return work.sequence;
  };
  for (const [text, [title]] of Object.entries(CALLS)) {
    const before = await next();
    await inBoth(text, async () => {
      const { open: [first], first_open: number } = await untilOpen(group);
      assert.deepEqual([first.title, first.sequence, number], [title, before + 1, before + 1]);
      assert.deepEqual([first.is_collective, first.is_awaited], [true, true]);
    });
    const { open, last } = await placeOf(group, 0);
    assert.deepEqual([open, last.title], [[], title]);
    assert.equal(last.sequence + 1, await next(), text);
  }
  await leave([page]);
});

test("what is below the limit is not reported", LIMITED, async () => {
  const { pages: [page], group } = await ranks(2, 3_600_000);
  const waiting = run(page, "({ group }) => group.barrier()");
  // By now the tab has waited for longer than the native rank waits until it says so.
  const received = group.recv([new Float32Array(1)], 0);
  await line(1, /rank 0 is in barrier #1 of group default_pg for/u);
  await Promise.all([received, run(page, `({ group }) => {
    return group.send([Float32Array.of(1)], 1).then(() => null);
  }`)]);
  await Promise.all([waiting, group.barrier()]);
  assert.deepEqual(said.get(0) ?? [], []);
  await leave([page]);
});

test("polyrank top sees what a tab is in", LIMITED, async () => {
  const { pages: [page], group } = await ranks(2, NEVER_MS);
  const reduce = "({ group }) => group.allreduce(Float32Array.of(1)).then(() => null)";
  const waiting = run(page, reduce);
  await untilOpen(group);
  const [tcp] = store.urls;
  const shown = await command(["top", tcp.replace("tcp://", ""), "--once"]);
  assert.match(shown, /^ +0 +browser +0 +allreduce #1 of default_pg /mu);
  await Promise.all([waiting, group.allreduce(Float32Array.of(1))]);
  await leave([page]);
});

/** A program that leaves a group of two ranks open, which are both its own. */
const OPEN = `
  import * as pr from ${JSON.stringify(new URL("../js/index.js", import.meta.url).href)};
  import * as log from ${JSON.stringify(new URL("../js/log.js", import.meta.url).href)};
  log.setStallReport(50);
  const store = new pr.HashStore();
  const join = (rank) => {
    return pr.ProcessGroup.join(store, rank, 2, { backend: "websocket", groupName: "both" });
  };
  const groups = await Promise.all([0, 1].map(join));
  const waiting = groups[0].allreduce(Float32Array.of(1));
  const lines = [];
  const add = (text) => lines.push(text);
  const said = new Promise((resolve) => {
    const warn = (text) => resolve(text);
    log.setLogger({ error: add, warn, info: add, debug: add });
  });
  const keep = setInterval(() => {}, 1000);
  waiting.catch(() => {});
  console.log(await said);
  await Promise.all([waiting, groups[1].allreduce(Float32Array.of(1))]);
  clearInterval(keep);
`;

test("it says so under Node, too, and keeps no process alive", LIMITED, async () => {
  const words = ["--input-type=module", "-e", OPEN];
  const { stdout } = await promisify(execFile)(process.execPath, words, { timeout: 30_000 });
  assert.match(stdout, /^polyrank \(stall\): allreduce #1 of group both: rank 0 has waited for/u);
});
