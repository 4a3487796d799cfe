// Groups of ranks in tabs and Workers of Chromium, which reach each other through a store's server:
// results, large tensors, objects, splitting, and tabs that are closed.

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, test } from "node:test";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { startStore } from "./store.mjs";

let server;
let store;
let browser;
let rooms = 0;
/** What the pages' consoles complained of. */
const complaints = [];

before(async () => {
  [server, store] = await Promise.all([serve(), startStore()]);
  browser = await launchChromium();
});

after(async () => {
  await browser?.close();
  store?.stop();
  server?.close();
});

/** Opens `size` tabs that join one group; gives what `act(pr, group)` gives in each of them. */
async function ranks(size) {
  rooms += 1;
  const open = async (_, rank) => {
    const page = await browser.newPage();
    page.on("console", (message) => {
      if (["warning", "error"].includes(message.type())) complaints.push(message.text());
    });
    await page.goto(server.origin);
    const url = `${store.url}/?rank=${rank}&world_size=${size}&room=${rooms}`;
    await page.evaluate(`globalThis.joined = import("polyrank-web").then(async (pr) => {
      const group = await pr.initProcessGroup("websocket", "${url}");
      return { pr, group };
    }); joined.then(() => null)`);
    return page;
  };
  return Promise.all(Array.from({ length: size }, open));
}

/** What `act({ pr, group })` gives in a tab; an error as its kind, rank and text. */
function run(page, act) {
  return page.evaluate(`joined.then(${act}).catch((error) => {
    return { kind: error.kind ?? error.name, rank: error.rank, text: error.message };
  })`);
}

function runAll(pages, act) {
  return Promise.all(pages.map((page) => run(page, act)));
}

async function close(pages) {
  await runAll(pages, "({ pr }) => pr.destroyProcessGroup().then(() => null)");
  assert.deepEqual(complaints.splice(0), []);
  await Promise.all(pages.map((page) => page.close()));
}

test("tabs reduce tensors of any size through the relay", { timeout: 120_000 }, async () => {
  const pages = await ranks(3);
  for (const count of [1, 1000, 100_000, 1_000_000]) {
    const sums = await runAll(pages, `async ({ pr, group }) => {
      const tensor = new Float32Array(${count}).map((_, at) => at % 7 + group.rank());
      await group.allreduce(tensor);
      return tensor.every((value, at) => value === 3 * (at % 7) + 3);
    }`);
    assert.deepEqual(sums, [true, true, true], `${count} elements`);
  }
  await close(pages);
});

test("tabs exchange objects, split, and use the store", { timeout: 120_000 }, async () => {
  const pages = await ranks(3);
  const objects = await runAll(pages, `async ({ pr, group }) => {
    const list = [null, null, null];
    await pr.allGatherObject(list, { rank: group.rank() });
    return list.map(({ rank }) => rank);
  }`);
  assert.deepEqual(objects, [[0, 1, 2], [0, 1, 2], [0, 1, 2]]);
  const parts = await runAll(pages, `async ({ pr, group }) => {
    const part = await pr.newGroup([0, 2]);
    if (part === pr.NON_GROUP_MEMBER) return "outside";
    const tensor = Int32Array.of(group.rank() + 1);
    await part.allreduce(tensor);
    return tensor[0];
  }`);
  assert.deepEqual(parts, [4, "outside", 4]);
  const counts = await runAll(pages, `async ({ group }) => {
    const store = await group.getGroupStore();
    await store.add("count", 1 + group.rank());
    await group.barrier();
    return store.add("count", 0);
  }`);
  assert.deepEqual(counts, [6, 6, 6]);
  await close(pages);
});

test("tabs make groups at once, each in an order of its own", { timeout: 120_000 }, async (it) => {
  const seed = randomInt(2 ** 31);
  it.diagnostic(`seed ${seed}`);
  for (const size of [2, 3]) {
    const pages = await ranks(size);
    const counts = await runAll(pages, `async ({ pr, group }) => {
      const { makeInAnyOrder } = await import("/bindings-wasm/tests/cases/new_groups.mjs");
      return makeInAnyOrder(pr, group, { repetitions: 10, seed: ${seed} });
    }`);
    const isCount = (count) => Number.isInteger(count) && count >= 30;
    assert.ok(counts.every(isCount), `seed ${seed}: ${JSON.stringify(counts)}`);
    await close(pages);
  }
});

test("hooks see operations of a tab, and NaN does not spread", { timeout: 120_000 }, async () => {
  const pages = await ranks(2);
  const seen = await runAll(pages, `async ({ pr, group }) => {
    const seen = [];
    group.registerPreHook(0, ({ name, inputTensors: [first] }) => seen.push([name, first.length]));
    group.registerCompletionHook(0, ({ opId, error }) => seen.push([opId, error?.kind ?? null]));
    group.registerPreHook(1, pr.nanCheck());
    const tensor = Float32Array.of(1, 2, 3);
    await group.allreduce(tensor, pr.ReduceOp.MAX);
    if (group.rank() === 1) tensor[2] = NaN;
    try {
      await group.allreduce(tensor);
    } catch (error) {
      seen.push(error.kind, error.message);
    }
    return seen;
  }`);
  const found = "ALLREDUCE of rank 1: element (2,) of input 0, of f32, is NaN";
  const both = [["ALLREDUCE", 3], [0, null], ["ALLREDUCE", 3]];
  assert.deepEqual(seen[1], [...both, "NonFiniteInput", found]);
  assert.deepEqual(seen[0].slice(0, 5), [...both, [1, "Aborted"], "Aborted"]);
  assert.ok(seen[0][5].includes(`its pre-hook 1 stopped ALLREDUCE #1: ${found}`), seen[0][5]);
  await Promise.all(pages.map((page) => page.close()));
});

test("functions of tabs combine arrays in order", { timeout: 120_000 }, async () => {
  const pages = await ranks(3);
  const all = await runAll(pages, `async ({ pr, group }) => {
    const op = pr.ReduceOp.custom((a, b) => a.map((element, index) => 2 * element + b[index]));
    const tensor = Float64Array.of(group.rank(), 10, group.rank() + 1);
    await group.allreduce(tensor, op);
    const odds = Uint8Array.of(7, group.rank());
    await group.allreduce(odds, pr.ReduceOp.LXOR);
    const pairs = Float32Array.of(group.rank() % 2, group.rank());
    await group.allreduce(pairs, pr.ReduceOp.MAXLOC);
    const boom = new RangeError("boom");
    const failing = pr.ReduceOp.custom(() => { throw boom; });
    const thrown = await group.allreduce(tensor.slice(), failing).catch((error) => error);
    return [...tensor, ...odds, ...pairs, thrown === boom || thrown.kind];
  }`);
  for (const values of all) {
    assert.deepEqual(values.slice(0, -1), [4, 70, 11, 1, 0, 1, 1]);
    assert.ok(values.at(-1) === true || values.at(-1) === "Aborted", values.at(-1));
  }
  assert.ok(all.some((values) => values.at(-1) === true));
  await Promise.all(pages.map((page) => page.close()));
});

test("the others hear of a tab that is closed", { timeout: 120_000 }, async () => {
  const pages = await ranks(3);
  await runAll(pages, "({ group }) => group.barrier()");
  const waiting = [pages[0], pages[2]].map((page) => run(page, `async ({ group }) => {
    await group.allreduce(new Float32Array(10));
    return "nothing happened";
  }`));
  await pages[1].close({ runBeforeUnload: false });
  for (const error of await Promise.all(waiting)) {
    assert.equal(error.kind, "RankFailed", JSON.stringify(error));
    assert.equal(error.rank, 1, JSON.stringify(error));
  }
  await Promise.all([pages[0].close(), pages[2].close()]);
});

test("nobody answers at an address without a store", { timeout: 120_000 }, async () => {
  const page = await browser.newPage();
  await page.goto(server.origin);
  const url = server.origin.replace("http:", "ws:");
  const text = await page.evaluate(`import("polyrank-web").then(async (pr) => {
    return pr.WebSocketStore.connect("${url}", { timeout: 300 }).then(() => "?", String);
  })`);
  assert.match(text, /Network.*cannot reach a store at ws:.*PyTorch/);
  await page.close();
});
