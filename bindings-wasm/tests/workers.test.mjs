// Groups of ranks in Workers of one page without any server: the conformance cases, large tensors,
// messages, objects, parts of groups, several groups, and Workers that are terminated; where pages
// may share memory with their Workers, and where not.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";

/** With these, a page may share memory with its Workers. */
const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

/** The ways in which tensors travel, and what pages are served with for each. */
const WAYS = { ports: {}, "shared memory": ISOLATED };

const servers = {};
let browser;

before(async () => {
  for (const [way, headers] of Object.entries(WAYS)) {
    servers[way] = await serve(new Map(), undefined, headers);
  }
  browser = await launchChromium();
});

after(async () => {
  await browser?.close();
  Object.values(servers).forEach((server) => server.close());
});

/** Runs `act` with a page in which `Ranks` is, and which must have nothing to complain of. */
async function inPage(way, act) {
  const page = await browser.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.stack));
  page.on("console", (message) => {
    if (["warning", "error"].includes(message.type())) complaints.push(message.text());
  });
  await page.goto(servers[way].origin);
  const isIsolated = await page.evaluate(async () => {
    Object.assign(globalThis, await import("/bindings-wasm/tests/worker_ranks.mjs"));
    return crossOriginIsolated;
  });
  assert.equal(isIsolated, way === "shared memory");
  await act(page);
  assert.deepEqual(complaints, []);
  await page.close();
}

/** What `text` gives in each of `size` ranks of a group. */
async function inRanks(way, size, text, isRank = false) {
  let values;
  await inPage(way, async (page) => {
    values = await page.evaluate(async ({ size, text, isRank }) => {
      const ranks = new Ranks(size, isRank);
      const values = await ranks.run(text);
      const left = await ranks.end();
      return left.every((value) => value === null) ? values : left;
    }, { size, text, isRank });
  });
  return values;
}

for (const way of Object.keys(WAYS)) {
  for (const size of [1, 2, 3, 5]) {
    test(`conformance cases of ${size} ranks, ${way}`, { timeout: 300_000 }, async () => {
      await inPage(way, async (page) => {
        const ends = await page.evaluate(conformance, size);
        assert.equal(ends.length, size);
        for (const { code, said } of ends) {
          assert.equal(code, 0, said.join("\n"));
          assert.match(said.join("\n"), /\d\d+ passed, 0 failed/);
        }
      });
    });
  }

  for (const size of [2, 3]) {
    test(`tensors of any size, ${size} ranks, ${way}`, { timeout: 120_000 }, async () => {
      const act = `async ({ group, rank }) => {
        const right = [];
        for (const count of [0, 1, 3, 1001, 262_144, 1_000_003]) {
          const tensor = new Float32Array(count).map((_, at) => at % 7 + rank);
          await group.allreduce(tensor);
          const expected = ${size} * ${size - 1} / 2;
          right.push(tensor.every((value, at) => value === ${size} * (at % 7) + expected));
        }
        return right;
      }`;
      const all = await inRanks(way, size, act);
      for (const right of all) assert.deepEqual(right, Array(6).fill(true));
    });
  }

  test(`messages go in order, both ways at once, ${way}`, { timeout: 120_000 }, async () => {
    const act = `async ({ group, rank }) => {
      const peer = 1 - rank;
      const numbers = Array.from({ length: 50 }, (_, at) => at);
      const sends = numbers.map((at) => group.send([Int32Array.of(at, rank)], peer));
      const long = new Uint8Array(3_000_001).fill(rank + 1);
      sends.push(group.send([long], peer, 7));
      const longer = new Uint8Array(3_000_001);
      await group.recv([longer], peer, 7);
      const came = [];
      for (const _ of numbers) {
        const tensor = new Int32Array(2);
        await group.recv([tensor], peer);
        came.push(tensor[0] === came.length && tensor[1] === peer);
      }
      await Promise.all(sends);
      return came.every(Boolean) && longer.every((byte) => byte === peer + 1);
    }`;
    assert.deepEqual(await inRanks(way, 2, act), [true, true]);
  });

  test(`objects, parts of a group, the store, ${way}`, { timeout: 120_000 }, async () => {
    const act = `async ({ pr, group, rank }) => {
      const list = [null, null, null];
      await pr.allGatherObject(list, { rank });
      const part = await group.splitGroup(rank === 1 ? [1] : [0, 2]);
      const sum = Int32Array.of(rank + 1);
      await part.allreduce(sum);
      const store = await group.getGroupStore();
      await store.add("count", 1 + rank);
      await group.barrier();
      const count = await store.add("count", 0);
      const missing = await store.wait(["nothing"], { timeout: 20 }).catch(({ kind }) => kind);
      return [list.map((it) => it.rank), part.size(), sum[0], count, missing];
    }`;
    assert.deepEqual(await inRanks(way, 3, act), [
      [[0, 1, 2], 2, 4, 6, "StoreTimeout"],
      [[0, 1, 2], 1, 2, 6, "StoreTimeout"],
      [[0, 1, 2], 2, 4, 6, "StoreTimeout"],
    ]);
  });

  test(`windows and prepared operations, ${way}`, { timeout: 120_000 }, async () => {
    const act = `async ({ pr, group, rank }) => {
      const window = await group.newWindow(pr.alloc("i64", [3]));
      await window.put(BigInt64Array.of(BigInt(10 + rank)), (rank + 1) % 3, 1);
      await window.fetchAndAdd(BigInt64Array.of(1n), new BigInt64Array(1), 0, 0);
      await window.fence();
      const [count, from] = [new BigInt64Array(1), new BigInt64Array(1)];
      await window.get(count, 0, 0);
      await window.get(from, rank, 1);
      await window.fence();
      await window.tensorDeregister();
      const sum = Float32Array.of(0);
      const prepared = group.prepareAllreduce(sum);
      for (let round = 1; round < 4; round += 1) {
        sum[0] = rank + round;
        await prepared.start();
      }
      return [Number(count[0]), Number(from[0]), sum[0]];
    }`;
    assert.deepEqual(await inRanks(way, 3, act), [[3, 12, 12], [3, 10, 12], [3, 11, 12]]);
  });

  test(`the page itself is a rank, ${way}`, { timeout: 120_000 }, async () => {
    const act = `async ({ group, rank }) => {
      const tensor = new Float64Array(100_000).fill(rank + 1);
      for (let round = 0; round < 20; round += 1) await group.allreduce(tensor.fill(rank + 1));
      return [tensor[0], tensor[99_999], typeof document];
    }`;
    const worker = [6, 6, "undefined"];
    assert.deepEqual(await inRanks(way, 3, act, true), [worker, worker, [6, 6, "object"]]);
  });

  test(`several groups of one page at once, ${way}`, { timeout: 120_000 }, async () => {
    await inPage(way, async (page) => {
      const sums = await page.evaluate(async () => {
        const groups = [new Ranks(2), new Ranks(3)];
        const act = `async ({ group, rank }) => {
          const tensor = Int32Array.of(rank + 1);
          for (let round = 0; round < 100; round += 1) {
            await group.allreduce(tensor.fill(rank + 1));
          }
          return tensor[0];
        }`;
        const sums = await Promise.all(groups.map((ranks) => ranks.run(act)));
        await Promise.all(groups.map((ranks) => ranks.end()));
        return sums;
      });
      assert.deepEqual(sums, [[3, 3], [6, 6, 6]]);
    });
  });

  test(`a Worker serves its timers between operations, ${way}`, { timeout: 120_000 }, async () => {
    const act = `async ({ group }) => {
      let ticks = 0;
      const timer = setInterval(() => (ticks += 1), 1);
      const value = Int32Array.of(1);
      for (let round = 0; round < 5000; round += 1) await group.allreduce(value);
      clearInterval(timer);
      return ticks;
    }`;
    for (const ticks of await inRanks(way, 2, act)) assert.ok(ticks >= 3, `${ticks} ticks`);
  });

  test(`the others hear of a Worker that is terminated, ${way}`, { timeout: 120_000 }, async () => {
    await inPage(way, async (page) => {
      const errors = await page.evaluate(async () => {
        const ranks = new Ranks(3);
        await ranks.run("({ group }) => group.barrier().then(() => null)");
        const act = "({ group }) => group.allreduce(new Float32Array(10)).then(() => null)";
        const waiting = ranks.run(act, [0, 2]);
        ranks.terminate(1);
        return waiting;
      });
      for (const error of errors) {
        assert.equal(error.kind, "RankFailed", JSON.stringify(error));
        assert.equal(error.rank, 1, JSON.stringify(error));
        assert.match(error.text, /its Worker was terminated/);
      }
    });
  });

  test(`a Worker that ended when it was idle is missed, ${way}`, { timeout: 120_000 }, async () => {
    await inPage(way, async (page) => {
      const error = await page.evaluate(async () => {
        const ranks = new Ranks(2);
        await ranks.run("({ group }) => group.rank()");
        ranks.terminate(1);
        const act = `async ({ group }) => {
          await group.send([new Float32Array(10)], 1);
          await group.barrier();
        }`;
        const [error] = await ranks.run(act, [0]);
        return error;
      });
      assert.equal(error.kind, "RankFailed", JSON.stringify(error));
      assert.equal(error.rank, 1, JSON.stringify(error));
    });
  });
}

/** Runs in a page: the conformance cases in `size` Workers. */
async function conformance(size) {
  const { MessagePortStore } = await import("polyrank-web/workers");
  const store = new MessagePortStore();
  const ranks = Array.from({ length: size }, (_, rank) => {
    const worker = new Worker("/bindings-wasm/tests/worker_cases.mjs", { type: "module" });
    const port = store.openPort();
    worker.postMessage({ port, rank, size }, [port]);
    return new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = ({ message }) => reject(new Error(message));
    });
  });
  return Promise.all(ranks);
}
