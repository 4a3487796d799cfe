// Every request on every store, by the same rules.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import * as pr from "polyrank";

const text = (bytes) => new TextDecoder().decode(bytes);

const STORES = {
  HashStore: async () => new pr.HashStore(),
  FileStore: async (folder) => pr.FileStore.open(join(folder, "store")),
  TCPStore: async () => {
    return pr.TCPStore.connect("127.0.0.1", 0, { isMaster: true, waitForWorkers: false });
  },
  PrefixStore: async () => new pr.PrefixStore("under", new pr.HashStore()),
};

for (const [name, make] of Object.entries(STORES)) {
  test(`every request on a ${name}`, async (context) => {
    const folder = await mkdtemp(join(tmpdir(), "polyrank-"));
    context.after(() => rm(folder, { recursive: true, force: true }));
    const store = await make(folder);
    assert.ok(store instanceof pr.Store && store instanceof pr[name]);
    await values(store);
    await counters(store);
    await waits(store);
    await order(store, name);
    if (name !== "FileStore") await queues(store);
  });
}

async function values(store) {
  await store.set("text", "größer");
  assert.equal(text(await store.get("text")), "größer");
  await store.set("bytes", Uint8Array.of(0, 255, 7));
  assert.deepEqual(await store.get("bytes"), Uint8Array.of(0, 255, 7));
  await store.append("text", "!");
  assert.equal(text(await store.get("text")), "größer!");
  assert.equal(text(await store.compareSet("new", "", "first")), "first");
  assert.equal(text(await store.compareSet("new", "wrong", "second")), "first");
  assert.equal(text(await store.compareSet("new", "first", "second")), "second");
  assert.equal(await store.check(["text", "new"]), true);
  assert.equal(await store.check(["none"]), false);
  await store.multiSet(["a", "b"], ["1", "2"]);
  assert.deepEqual((await store.multiGet(["b", "a"])).map(text), ["2", "1"]);
  const keys = await store.listKeys();
  for (const key of ["text", "bytes", "new", "a", "b"]) assert.ok(keys.includes(key), key);
  assert.ok((await store.numKeys()) >= 5);
  assert.equal(await store.deleteKey("a"), true);
  assert.equal(await store.deleteKey("a"), false);
  const other = await store.clone();
  assert.equal(text(await other.get("b")), "2");
  assert.equal(store.hasExtendedApi(), true);
  await assert.rejects(store.multiSet(["a"], []), { kind: "InvalidArgument" });
}

async function counters(store) {
  assert.equal(await store.add("count", 5), 5);
  assert.equal(await store.add("count", -7n), -2n);
  assert.equal(text(await store.get("count")), "-2");
  await assert.rejects(store.add("text", 1), { kind: "NotACounter", name: "NotACounterError" });
  assert.equal(await store.add("huge", 2 ** 53 - 1), 2 ** 53 - 1);
  assert.throws(() => store.add("huge", 2 ** 53), { kind: "InvalidArgument", message: /BigInt/ });
  assert.equal(await store.add("huge", 2n), 2n ** 53n + 1n);
  await assert.rejects(store.add("huge", 1), { message: /took effect.* 9007199254740994:/ });
  assert.equal(await store.add("huge", -1n), 2n ** 53n + 1n);
  assert.equal(await store.add("huge", 0n), 2n ** 53n + 1n);
}

async function waits(store) {
  const other = await store.clone();
  const value = other.get("later");
  await store.set("later", "now");
  assert.equal(text(await value), "now");
  const several = other.wait(["one", "two"], { timeout: 60_000 });
  await store.set("one", "");
  await store.set("two", "");
  await several;
  const expired = store.wait(["never"], { timeout: 20 });
  await assert.rejects(expired, (error) => {
    assert.ok(error instanceof pr.StoreTimeoutError && error instanceof pr.DistStoreError);
    assert.equal(error.waitedMs, 20);
    assert.match(error.keys, /never/);
    return true;
  });
  const barrier = [store, other].map((one) => one.barrier("all", 2, { timeout: 60_000 }));
  await Promise.all(barrier);
  store.setTimeout(1234);
  assert.equal(store.timeout, 1234);
  store.setTimeout(300_000);
}

/** Requests that are not awaited come in the order of their calls, through a view as well. */
async function order(store, name) {
  const view = new pr.PrefixStore("of", new pr.PrefixStore("order", store));
  const places = Array.from({ length: 300 }, (_, place) => place);
  const direct = view.underlyingStore;
  await Promise.all(places.flatMap((place) => [
    (place % 2 === 0 ? direct : store).append(`${place % 2 === 0 ? "" : "order/"}log`, `${place} `),
    view.set("last", String(place)),
  ]));
  assert.equal(text(await direct.get("log")), `${places.join(" ")} `);
  assert.equal(text(await view.get("last")), String(places.at(-1)));
  // What need not wait is read as it was before what comes behind.
  await view.set("last", "-1");
  const reads = places.map((place) => {
    const read = view.get("last");
    view.set("last", String(place));
    return read;
  });
  assert.deepEqual((await Promise.all(reads)).map(text), places.map((place) => String(place - 1)));
  // A request that waits comes behind those before it, and the next do not stand behind it.
  const set = view.set("last", "new");
  const read = view.get("last");
  await set;
  assert.equal(text(await read), "new");
  if (name === "TCPStore") return;
  const value = store.get("not yet");
  await store.set("not yet", "here");
  assert.equal(text(await value), "here");
}

async function queues(store) {
  await store.queuePush("queue", "x");
  await store.queuePush("queue", "y");
  assert.equal(await store.queueLen("queue"), 2);
  assert.equal(text(await store.queuePop("queue")), "x");
  assert.equal(text(await store.queuePop("queue", { block: false })), "y");
  await assert.rejects(store.queuePop("queue", { block: false }), { kind: "QueueEmpty" });
}

test("requests over one WebSocket are in the order of their calls", async () => {
  const server = await STORES.TCPStore();
  const store = await pr.WebSocketStore.connect(`ws://127.0.0.1:${server.port}`);
  await order(store, "WebSocketStore");
});

test("a store that was released says so", async () => {
  const store = new pr.HashStore();
  await store[Symbol.asyncDispose]?.();
  if (Symbol.asyncDispose === undefined) return;
  await assert.rejects(async () => store.get("x"), /released/);
});

/** What `support/ending.js` prints of itself. */
async function printed(...words) {
  const program = fileURLToPath(new URL("./support/ending.js", import.meta.url));
  const all = ["--expose-gc", program, ...words];
  const { stdout } = await promisify(execFile)(process.execPath, all);
  return stdout;
}

test("an answer that no value can be is an error, and the others come", async () => {
  const said = await printed("an answer that is too long");
  assert.match(said, /^InvalidArgument: the answer is more than a value .* Set\(1\) \{ 1 \}\n$/);
});

test("a call that throws leaves nothing behind", async () => {
  const grown = Number(await printed("calls that throw"));
  assert.ok(grown < 1.6, `${grown} MiB for 60000 calls`);
});

test("what a store was made of can be asked for", async () => {
  const inner = new pr.HashStore();
  const store = new pr.PrefixStore("p", inner);
  assert.equal(store.prefix, "p");
  assert.equal(store.underlyingStore, inner);
  await store.set("k", "v");
  assert.equal(text(await inner.get("p/k")), "v");
  const client = pr.TCPStore.connect("127.0.0.1", 1, { timeout: 50, waitForWorkers: false });
  await assert.rejects(client, { kind: "Network" });
});

test("what a store cannot do is an error of the stores", async () => {
  const opened = pr.FileStore.open("/no such folder/store", 1);
  await assert.rejects(opened, (error) => {
    assert.ok(error instanceof pr.DistStoreError && !(error instanceof pr.StoreTimeoutError));
    assert.match(error.message, /cannot open the store's file/);
    return true;
  });
});
