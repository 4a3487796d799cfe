// Groups of ranks in Workers of one page without any server: the conformance cases, large tensors,
// messages, objects, parts of groups, several groups, and Workers that are terminated; where pages
// may share memory with their Workers, and where not.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";

/** With these, a page may share memory with its Workers. */
const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

let browser;
before(async () => {
  browser = await launchChromium();
});
after(() => browser?.close());

for (const [way, headers] of Object.entries({ ports: {}, "shared memory": ISOLATED })) {
  describe(way, () => {
    let server;
    before(async () => {
      server = await serve(new Map(), undefined, headers);
    });
    after(() => server?.close());

    /** Runs `act` with a page in which `Ranks` is, and which must have nothing to complain of. */
    async function inPage(act) {
      const page = await browser.newPage();
      const complaints = [];
      page.on("pageerror", (error) => complaints.push(error.stack));
      page.on("console", (message) => {
        if (["warning", "error"].includes(message.type())) complaints.push(message.text());
      });
      await page.goto(server.origin);
      const isolated = await page.evaluate(async () => {
        Object.assign(globalThis, await import("/bindings-wasm/tests/worker_ranks.mjs"));
        return crossOriginIsolated;
      });
      assert.equal(isolated, headers === ISOLATED);
      await act(page);
      assert.deepEqual(complaints, []);
      await page.close();
    }

    /** What `text` gives in each of `size` ranks of a group. */
    function inRanks(size, text, isRank = false) {
      let values;
      return inPage(async (page) => {
        values = await page.evaluate(async ({ size, text, isRank }) => {
          const ranks = new Ranks(size, isRank);
          const values = await ranks.run(text);
          const left = await ranks.end();
          return left.every((value) => value === null) ? values : left;
        }, { size, text, isRank });
      }).then(() => values);
    }

    for (const size of [1, 2, 3, 5]) {
      test(`conformance cases of ${size} ranks`, { timeout: 300_000 }, async () => {
        await inPage(async (page) => {
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
      test(`tensors of any size, ${size} ranks`, { timeout: 120_000 }, async () => {
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
        for (const right of await inRanks(size, act)) assert.deepEqual(right, Array(6).fill(true));
      });
    }

    test("messages go in order, both ways at once", { timeout: 120_000 }, async () => {
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
      assert.deepEqual(await inRanks(2, act), [true, true]);
    });

    test("objects, parts of a group, the store", { timeout: 120_000 }, async () => {
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
      assert.deepEqual(await inRanks(3, act), [
        [[0, 1, 2], 2, 4, 6, "StoreTimeout"],
        [[0, 1, 2], 1, 2, 6, "StoreTimeout"],
        [[0, 1, 2], 2, 4, 6, "StoreTimeout"],
      ]);
    });

    test("the page itself is a rank", { timeout: 120_000 }, async () => {
      const act = `async ({ group, rank }) => {
        const tensor = new Float64Array(100_000).fill(rank + 1);
        for (let round = 0; round < 20; round += 1) await group.allreduce(tensor.fill(rank + 1));
        return [tensor[0], tensor[99_999], typeof document];
      }`;
      const worker = [6, 6, "undefined"];
      assert.deepEqual(await inRanks(3, act, true), [worker, worker, [6, 6, "object"]]);
    });

    test("several groups of one page at once", { timeout: 120_000 }, async () => {
      await inPage(async (page) => {
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

    test("a Worker serves its timers between operations", { timeout: 120_000 }, async () => {
      const act = `async ({ group }) => {
        let ticks = 0;
        const timer = setInterval(() => (ticks += 1), 1);
        const value = Int32Array.of(1);
        for (let round = 0; round < 5000; round += 1) await group.allreduce(value);
        clearInterval(timer);
        return ticks;
      }`;
      for (const ticks of await inRanks(2, act)) assert.ok(ticks >= 3, `${ticks} ticks`);
    });

    test("the others hear of a Worker that is terminated", { timeout: 120_000 }, async () => {
      await inPage(async (page) => {
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

    test("a Worker that ended before it was needed is missed", { timeout: 120_000 }, async () => {
      await inPage(async (page) => {
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
  });
}

describe("stores over ports", () => {
  let server;
  let page;
  before(async () => {
    server = await serve();
    page = await browser.newPage();
    await page.goto(server.origin);
  });
  after(async () => {
    await page?.close();
    server?.close();
  });

  /** The kind and the text of what `act(pr, MessagePortStore)` in the page fails with. */
  function failure(act) {
    return page.evaluate(`Promise.all([import("polyrank-web"), import("polyrank-web/workers")])
      .then(([pr, { MessagePortStore }]) => (${act})(pr, MessagePortStore))
      .then((value) => ["nothing", String(value)], ({ kind, message }) => [kind, message])`);
  }

  test("a port connects once", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure(async (pr, MessagePortStore) => {
      const port = new MessagePortStore().openPort();
      const store = await MessagePortStore.connect(port);
      await store.set("key", "value");
      await MessagePortStore.connect(port);
    });
    assert.equal(kind, "InvalidArgument");
    assert.match(text, /this port is connected already.*openPort\(\) for every rank/);
  });

  test("what is not a port of a store is refused", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure((pr, MessagePortStore) => MessagePortStore.connect("port"));
    assert.equal(kind, "InvalidType");
    assert.match(text, /expected a MessagePort/);
    const strange = await failure((pr, MessagePortStore) => {
      return MessagePortStore.connect(new MessageChannel().port1, { timeout: 50 });
    });
    assert.equal(strange[0], "Network");
    assert.match(strange[1], /no MessagePortStore answered at the port within 50 ms: openPort\(\)/);
  });

  test("only who has the keys opens ports", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure(async (pr, MessagePortStore) => {
      const store = await MessagePortStore.connect(new MessagePortStore().openPort());
      store.openPort();
    });
    assert.equal(kind, "InvalidArgument");
    assert.match(text, /only the MessagePortStore that was made by `new` opens ports/);
  });

  test("two ranks of a page, each at its place, and a Worker", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure(async (pr, MessagePortStore) => {
      const { RankWorker } = await import("/bindings-wasm/tests/worker_ranks.mjs");
      const host = new MessagePortStore();
      const worker = new RankWorker(host.openPort(), 2, 3, "places");
      const there = worker.run(`async ({ group }) => {
        const sum = Float32Array.of(3);
        await group.allreduce(sum);
        await group.shutdown();
        return sum[0];
      }`);
      const stores = [host, await MessagePortStore.connect(host.openPort())];
      const join = (store, rank) => pr.ProcessGroup.join(store, rank, 3, { groupName: "places" });
      const groups = await Promise.all(stores.map(join));
      const sums = groups.map((_, rank) => Float32Array.of(rank + 1));
      await Promise.all(groups.map((group, rank) => group.allreduce(sums[rank])));
      await Promise.all(groups.map((group) => group.shutdown()));
      return [...sums.map(([sum]) => sum), await there];
    });
    assert.deepEqual([kind, text], ["nothing", "6,6,6"]);
  });

  test("two ranks of a page cannot share a place", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure(async (pr, MessagePortStore) => {
      const { RankWorker } = await import("/bindings-wasm/tests/worker_ranks.mjs");
      const host = new MessagePortStore();
      new RankWorker(host.openPort(), 2, 3, "places");
      const join = (rank) => pr.ProcessGroup.join(host, rank, 3, { groupName: "places" });
      const groups = await Promise.all([0, 1].map(join));
      await Promise.all(groups.map((group) => group.allreduce(Float32Array.of(1))));
    });
    assert.equal(kind, "RankFailed");
    assert.match(text, /each rank needs a port of its own: call openPort\(\)/);
  });

  test("its methods are those of the keys' store", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure(async (pr, MessagePortStore) => {
      const host = new MessagePortStore();
      const store = await MessagePortStore.connect(host.openPort(), { timeout: 200 });
      const said = [store.timeout, store.hasExtendedApi()];
      const text = (bytes) => new TextDecoder().decode(bytes);
      await host.set("a", "1");
      await store.append("a", "2");
      await store.multiSet(["b", "c"], ["x", "y"]);
      said.push((await store.multiGet(["a", "c"])).map(text).join(" "));
      said.push(await store.add("n", 5), await host.add("n", -2), await store.numKeys());
      said.push(await store.check(["a", "b"]), await store.deleteKey("b"), await host.check(["b"]));
      said.push(text(await store.compareSet("a", "12", "13")));
      const popped = store.queuePop("q");
      await host.queuePush("q", "first");
      said.push(text(await popped), await store.queueLen("q"));
      const late = [store.get("nothing"), store.add("a/b", 1), store.wait(["late"], 5000)];
      await host.set("late", "");
      said.push(await late[0].catch(({ kind }) => kind), await late[1], await late[2]);
      said.push(await store.queuePop("q", { block: false }).catch(({ kind }) => kind));
      await host.set("text", "text");
      said.push(await store.add("text", 1).catch(({ kind, key }) => `${kind} ${key}`));
      const stopped = store.get("nothing", { signal: AbortSignal.abort(new Error("stop")) });
      said.push(await stopped.catch(({ message }) => message));
      return said.join(", ");
    });
    assert.deepEqual([kind, text], [
      "nothing",
      "200, true, 12 y, 5, 3, 4, true, true, false, 13, first, 0, StoreTimeout, 1, , QueueEmpty, " +
        "NotACounter text, stop",
    ]);
  });

  test("ranks go on without the Worker that had the keys", { timeout: 60_000 }, async () => {
    const [kind, text] = await failure(async () => {
      const { RankWorker } = await import("/bindings-wasm/tests/worker_ranks.mjs");
      const host = new Worker("/bindings-wasm/tests/worker_host.mjs", { type: "module" });
      host.postMessage(2);
      const ports = await new Promise((resolve) => {
        host.onmessage = ({ data }) => resolve(data);
      });
      const ranks = ports.map((port, rank) => new RankWorker(port, rank, 2));
      const runAll = (text) => Promise.all(ranks.map((rank) => rank.run(text)));
      await runAll("({ group }) => group.barrier().then(() => null)");
      host.terminate();
      const said = await runAll(`async ({ group, store }) => {
        const error = await store.get("key").catch((error) => error);
        const sum = Float32Array.of(group.rank() + 1);
        await group.allreduce(sum);
        return [error.kind, error.message.includes("has ended"), sum[0]];
      }`);
      ranks.forEach((rank) => rank.terminate());
      return said.flat();
    });
    assert.deepEqual([kind, text], ["nothing", "Network,true,3,Network,true,3"]);
  });
});

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
