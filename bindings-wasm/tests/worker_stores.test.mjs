// The store through which Workers of a page meet: its methods, who may connect, and what is left
// when the Worker that had its keys has ended.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";

let server;
let browser;
let page;

before(async () => {
  [server, browser] = await Promise.all([serve(), launchChromium()]);
  page = await browser.newPage();
  await page.goto(server.origin);
});

after(async () => {
  await browser?.close();
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
