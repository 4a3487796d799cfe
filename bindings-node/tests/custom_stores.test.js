// Stores that are written in JavaScript: plain objects with the methods of one, classes that are
// derived from `Store`, and classes that are derived from a store of this package.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import * as pr from "../js/index.js";
import { UNREADABLE } from "./support/unreadable.js";

const text = (bytes) => new TextDecoder().decode(bytes);
const bytes = (value) => (typeof value === "string" ? new TextEncoder().encode(value) : value);
const NO_BYTES = new Uint8Array(0);

/** The methods of a table in this process. `get` waits by promises. */
function tableMethods() {
  const table = new Map();
  let wakers = [];
  const changed = () => {
    for (const wake of wakers.splice(0)) wake();
  };
  return {
    calls: [],
    async set(key, value) {
      this.calls.push(`set ${key}`);
      table.set(key, bytes(value).slice());
      changed();
    },
    async get(key) {
      while (!table.has(key)) await new Promise((wake) => wakers.push(wake));
      return table.get(key);
    },
    add(key, amount) {
      const sum = Number(text(table.get(key) ?? bytes("0"))) + amount;
      table.set(key, bytes(String(sum)));
      changed();
      return sum;
    },
    check: (keys) => keys.every((key) => table.has(key)),
    async compareSet(key, expected, desired) {
      const now = table.get(key) ?? NO_BYTES;
      if (text(now) === text(expected)) table.set(key, desired);
      changed();
      return table.get(key) ?? expected;
    },
    deleteKey: async (key) => table.delete(key),
    listKeys: () => [...table.keys()],
  };
}

class Table extends pr.Store {
  constructor() {
    super();
    Object.assign(this, tableMethods());
  }
}

/** A class without a base class of this package, whose methods are on its prototype. */
class Plain {
  #methods = tableMethods();
  set(...given) {
    return this.#methods.set(...given);
  }
  get(key) {
    return this.#methods.get(key);
  }
  add(key, amount) {
    return this.#methods.add(key, amount);
  }
  check(keys) {
    return this.#methods.check(keys);
  }
  compareSet(...given) {
    return this.#methods.compareSet(...given);
  }
  deleteKey(key) {
    return this.#methods.deleteKey(key);
  }
}

/** Joins `size` ranks of this process through one store, sums their ranks, and leaves. */
async function meet(store, size, timeout = 20_000) {
  const ranks = [...Array(size).keys()];
  const joined = ranks.map((rank) => pr.ProcessGroup.join(store, rank, size, { timeout }));
  const groups = await Promise.all(joined);
  const sums = await Promise.all(groups.map(async (group, rank) => {
    const tensor = Float32Array.of(rank, 1);
    await group.allreduce([tensor]);
    return [...tensor];
  }));
  const total = (size * (size - 1)) / 2;
  assert.deepEqual(sums, ranks.map(() => [total, size]));
  await Promise.all(groups.map((group) => group.shutdown()));
}

for (const size of [1, 2, 3, 5]) {
  test(`${size} ranks meet through a class that is derived from Store`, async () => {
    await meet(new Table(), size);
  });

  test(`${size} ranks meet through an object that is not a Store`, async () => {
    await meet(new Plain(), size);
    await meet(tableMethods(), size);
  });
}

test("what a store makes up is quoted in the error", async () => {
  const madeUp = { ...tableMethods(), get: () => "text", check: () => true };
  const allMadeUp = { ...madeUp, compareSet: () => "text" };
  for (const [store, said] of [[madeUp, /"text" under/], [allMadeUp, /text/]]) {
    await assert.rejects(pr.ProcessGroup.join(store, 0, 2, { timeout: 20_000 }), (error) => {
      assert.ok(error instanceof pr.RendezvousError, error);
      return !(error instanceof pr.RendezvousTimeoutError) && said.test(error.message);
    });
  }
});

test("a store in a Worker, behind a port, is one", async () => {
  const worker = new Worker(
    `
    const { parentPort } = require("node:worker_threads");
    const table = new Map();
    let waiting = [];
    parentPort.on("message", function answer(request) {
      const { id, method, key, keys, value, expected } = request;
      const reply = (result) => parentPort.postMessage({ id, result });
      const has = (key) => table.has(key);
      if (method === "get" && !has(key)) return waiting.push(request);
      if (method === "get") return reply(table.get(key));
      if (method === "set") table.set(key, value);
      if (method === "add") table.set(key, String(Number(table.get(key) ?? 0) + value));
      if (method === "compareSet") {
        const now = Buffer.from(table.get(key) ?? "");
        if (now.equals(Buffer.from(expected))) table.set(key, value);
      }
      reply({
        set: () => null,
        add: () => Number(table.get(key)),
        check: () => keys.every(has),
        compareSet: () => table.get(key) ?? expected,
        deleteKey: () => table.delete(key),
      }[method]());
      for (const later of waiting.splice(0)) answer(later);
    });
    `,
    { eval: true },
  );
  const open = new Map();
  worker.on("message", ({ id, result }) => open.get(id)(result));
  const ask = (request) => new Promise((resolve) => {
    open.set(open.size, resolve);
    worker.postMessage({ ...request, id: open.size - 1 });
  });
  const store = {
    set: (key, value) => ask({ method: "set", key, value }),
    get: (key) => ask({ method: "get", key }),
    add: (key, value) => ask({ method: "add", key, value }),
    check: (keys) => ask({ method: "check", keys }),
    compareSet: (key, expected, value) => ask({ method: "compareSet", key, expected, value }),
    deleteKey: (key) => ask({ method: "deleteKey", key }),
  };
  try {
    await meet(store, 3);
  } finally {
    await worker.terminate();
  }
});

test("a class that wraps a TCPStore is a store", async () => {
  const options = { isMaster: true, waitForWorkers: false };
  const inner = await pr.TCPStore.connect("localhost", 0, options);
  class Wrapping extends pr.Store {
    set = (key, value) => inner.set(`w/${key}`, value);
    get = (key) => inner.get(`w/${key}`);
    add = (key, amount) => inner.add(`w/${key}`, amount);
    check = (keys) => inner.check(keys.map((key) => `w/${key}`));
    compareSet = (key, ...values) => inner.compareSet(`w/${key}`, ...values);
    deleteKey = (key) => inner.deleteKey(`w/${key}`);
    // Two connections, as a `get` that waits holds the one.
    wait = async (keys, options) => {
      const other = await inner.clone();
      await other.wait(keys.map((key) => `w/${key}`), options);
    };
  }
  const store = new Wrapping();
  await store.multiSet(["a", "b"], ["1", "2"]);
  assert.deepEqual((await store.multiGet(["a", "b"])).map(text), ["1", "2"]);
  assert.equal(text(await inner.get("w/a")), "1");
  store[Symbol.dispose]();
});

test("methods that a class lacks are made of those that it has", async () => {
  const store = new Table();
  await store.multiSet(["a", "b"], ["1", bytes("2")]);
  assert.deepEqual((await store.multiGet(["b", "a"])).map(text), ["2", "1"]);
  assert.deepEqual(await store.multiGet([]), []);
  assert.equal(await store.numKeys(), 2);
  assert.deepEqual((await store.listKeys()).sort(), ["a", "b"]);
  await store.wait(["a", "b"]);
  await store.barrier("door", 1);
  const both = Promise.all([store.barrier("gate", 2), store.barrier("gate", 2)]);
  await both;
  await assert.rejects(store.multiSet(["a", "b"], ["1"]), pr.InvalidArgumentError);
  const later = store.wait(["late"], { timeout: 20_000 });
  await store.set("late", bytes("x"));
  await later;
});

test("methods that cannot be made of others are refused by name", async () => {
  const store = new Table();
  assert.equal(store.hasExtendedApi(), false);
  for (const [method, given] of [
    ["append", ["k", "v"]],
    ["queuePush", ["k", "v"]],
    ["queuePop", ["k"]],
    ["queueLen", ["k"]],
  ]) {
    await assert.rejects(store[method](...given), (error) => {
      assert.ok(error instanceof pr.UnsupportedError, error);
      assert.match(error.message, new RegExp(`Table does not support ${method}`));
      return true;
    });
    const view = new pr.PrefixStore("p", tableMethods());
    await assert.rejects(view[method](...given), /^UnsupportedError: the store object does not/);
  }
  class NoList extends pr.Store {
    set() {}
  }
  await assert.rejects(new NoList().numKeys(), /NoList does not support numKeys.*listKeys/);
  await assert.rejects(new NoList().get("k"), /NoList does not support get/);
  assert.throws(() => new pr.Store(), /derive a class/);
});

test("a class that has all methods has the extended ones", async () => {
  const inner = new pr.HashStore();
  class All extends Table {
    append = (key, value) => inner.append(key, value);
    queuePush = (key, value) => inner.queuePush(key, value);
    queuePop = (key, { block }) => inner.queuePop(key, { block });
    queueLen = (key) => inner.queueLen(key);
  }
  const view = new pr.PrefixStore("p", new All());
  assert.equal(view.hasExtendedApi(), true);
  await view.queuePush("q", "1");
  assert.equal(await view.queueLen("q"), 1);
  assert.equal(text(await view.queuePop("q")), "1");
  await assert.rejects(view.queuePop("q", { block: false }), pr.QueueEmptyError);
  await view.append("log", "ab");
  assert.equal(text(await inner.get("p/log")), "ab");
});

test("a PrefixStore over an object puts its prefix before keys, and knows the object", async () => {
  for (const store of [new Table(), tableMethods(), new Plain()]) {
    const view = new pr.PrefixStore("x", store);
    assert.equal(view.underlyingStore, store);
    await view.set("k", "v");
    assert.equal(text(await store.get("x/k")), "v");
    assert.equal(await view.add("n", 5), 5);
    assert.equal(await view.add("n", 2 ** 40), 5 + 2 ** 40);
    assert.equal(await view.check(["k", "none"]), false);
    assert.equal(text(await view.compareSet("k", "v", "w")), "w");
    assert.equal(text(await view.compareSet("none", "a", "b")), "a");
    assert.equal(await view.deleteKey("k"), true);
    assert.equal(await view.deleteKey("k"), false);
    await view.set("empty", NO_BYTES);
    assert.equal((await view.get("empty")).length, 0);
  }
});

test("calls that are not awaited begin in their order", async () => {
  const store = new Table();
  const view = new pr.PrefixStore("p", store);
  const calls = [];
  for (let index = 0; index < 20; index += 1) calls.push(view.set(`${index}`, "v"));
  await Promise.all(calls);
  assert.deepEqual(store.calls, [...Array(20).keys()].map((index) => `set p/${index}`));
});

test("a method may call others of its store", async () => {
  class Counting extends Table {
    constructor() {
      super();
      const { set } = this;
      this.set = async (key, value) => {
        await this.multiGet([]);
        await this.numKeys();
        await set.call(this, key, value);
      };
    }
  }
  const store = new Counting();
  const view = new pr.PrefixStore("p", store);
  await view.multiSet(["a", "b"], ["1", "2"]);
  assert.equal(text(await view.get("b")), "2");
});

test("what is overridden of a store is used, and the rest is that store's", async () => {
  class Shouting extends pr.HashStore {
    async get(key) {
      return text(await super.get(key)).toUpperCase();
    }
  }
  const store = new Shouting();
  await store.set("k", "v");
  assert.equal(await store.get("k"), "V");
  const view = new pr.PrefixStore("p", store);
  await view.set("k", "quiet");
  assert.equal(text(await view.get("k")), "QUIET");
  // What is made of it uses it, too.
  assert.deepEqual((await view.multiGet(["k"])).map(text), ["QUIET"]);
  assert.deepEqual((await store.multiGet(["k", "p/k"])).map(text), ["V", "QUIET"]);
  assert.equal(await store.numKeys(), 2);
  await store.queuePush("q", "raw");
  assert.equal(text(await view.underlyingStore.queuePop("q")), "raw");
  assert.equal(view.underlyingStore, store);
  assert.ok(store.hasExtendedApi());
  store.setTimeout(1234);
  assert.equal(view.timeout, 1234);

  class Unchanged extends pr.HashStore {}
  await meet(new Unchanged(), 2);

  class Seen extends pr.TCPStore {
    seen = [];
    set(key, value) {
      this.seen.push(key);
      return super.set(key, value);
    }
  }
  const tcp = await Seen.connect("localhost", 0, { isMaster: true, waitForWorkers: false });
  assert.ok(tcp instanceof Seen);
  assert.ok(tcp.port > 0);
  await new pr.PrefixStore("p", tcp).set("k", "v");
  assert.deepEqual(tcp.seen, ["p/k"]);
});

test("groups are made over such a store, and of such a group", async () => {
  const store = new Table();
  await pr.initProcessGroup({ store, rank: 0, worldSize: 1, backend: "tcp" });
  const group = await pr.newGroup([0]);
  const tensor = Int32Array.of(7);
  await group.allreduce([tensor]);
  assert.deepEqual([...tensor], [7]);
  const of = group.getGroupStore();
  await of.set("mine", "1");
  assert.ok(store.listKeys().some((key) => key.endsWith("mine")), `${store.listKeys()}`);
  await pr.destroyProcessGroup();
  await pr.initProcessGroup({ store: tableMethods(), rank: 0, worldSize: 1, backend: "tcp" });
  await pr.destroyProcessGroup();
});

test("what a method throws is what the call fails with", async () => {
  const thrown = new RangeError("the disk is full");
  class Failing extends Table {
    constructor(error) {
      super();
      this.set = () => {
        throw error;
      };
      this.add = async () => {
        throw error;
      };
    }
  }
  const view = new pr.PrefixStore("p", new Failing(thrown));
  await assert.rejects(view.set("k", "v"), (error) => error === thrown);
  await assert.rejects(view.multiSet(["k"], ["v"]), (error) => error === thrown);
  const joining = pr.ProcessGroup.join(new Failing(thrown), 0, 2, { timeout: 20_000 });
  await assert.rejects(joining, (error) => error === thrown);
  const odd = new pr.PrefixStore("p", new Failing("no error at all"));
  await assert.rejects(odd.set("k", "v"), (error) => error === "no error at all");
});

test("what cannot be looked at may be thrown, too", async () => {
  for (const thrown of [...UNREADABLE, undefined, null]) {
    const store = tableMethods();
    store.get = () => {
      throw thrown;
    };
    const view = new pr.PrefixStore("p", store);
    await assert.rejects(view.get("k"), (error) => {
      assert.ok(error instanceof pr.DistStoreError);
      assert.ok(error.cause === thrown);
      const text = thrown ? "what was thrown has no text" : `it threw ${thrown}`;
      assert.ok(error.message.startsWith("object.get: ") && error.message.endsWith(text));
      return true;
    });
    // The store is asked on.
    assert.equal(await view.add("n", 3), 3);
  }
});

test("a limit of a store's own is told with its text, and no key is missing", async () => {
  const late = new DOMException("the disk sleeps", "TimeoutError");
  for (const method of ["set", "get", "add", "check", "compareSet", "deleteKey"]) {
    const fail = () => {
      throw late;
    };
    const view = new pr.PrefixStore("p", { ...tableMethods(), [method]: fail });
    const given = {
      set: ["k", "v"],
      add: ["k", 1],
      check: [["k"]],
      compareSet: ["k", "a", "b"],
    };
    await assert.rejects(view[method](...(given[method] ?? ["k"])), (error) => {
      assert.ok(error instanceof pr.StoreTimeoutError, `${method}: ${error}`);
      assert.equal(error.message, `object.${method}: TimeoutError: the disk sleeps`);
      assert.equal(error.cause, late);
      assert.deepEqual([error.operation, error.keys], [method, "p/k"]);
      return true;
    });
    if (method !== "add" && method !== "compareSet") continue;
    const about = { store: { ...tableMethods(), [method]: fail }, rank: 0, worldSize: 1 };
    await assert.rejects(pr.initProcessGroup({ ...about, timeout: 5000 }), (error) => {
      return error instanceof pr.StoreTimeoutError && error.cause === late;
    });
  }
  const inner = new pr.HashStore();
  inner.setTimeout(20);
  const wrapping = new pr.PrefixStore("p", { ...tableMethods(), get: (key) => inner.get(key) });
  await assert.rejects(wrapping.get("k"), (error) => {
    return error instanceof pr.StoreTimeoutError && /timeout after 20ms.*p\/k/.test(error.message);
  });
  const waiting = { ...tableMethods(), wait: (keys, options) => inner.wait(keys, options) };
  await meet(waiting, 1);
  await assert.rejects(new pr.PrefixStore("p", waiting).wait(["k"]), pr.StoreTimeoutError);
});

test("a clone of a store of a class of the program is one of that class", async () => {
  class Counting extends pr.HashStore {
    sets = 0;
    set(key, value) {
      this.sets += 1;
      return super.set(key, value);
    }
  }
  class Plainer extends pr.HashStore {}
  for (const made of [new Counting(), new Plainer()]) {
    const clone = await made.clone();
    assert.equal(clone.constructor, made.constructor);
    assert.notEqual(clone, made);
    await clone.set("k", "v");
    assert.equal(text(await made.get("k")), "v");
    assert.equal(clone.sets, clone instanceof Counting ? 1 : undefined);
    assert.equal(made.sets, clone instanceof Counting ? 0 : undefined);
    assert.equal((await clone.clone()).constructor, made.constructor);
  }
  class Alone extends pr.HashStore {
    constructor() {
      super();
    }
  }
  await assert.rejects(new Alone().clone(), /Alone.clone.*constructor must pass its arguments/);
  const own = new Table();
  assert.equal(await own.clone(), own);
  const plain = await new pr.HashStore().clone();
  assert.equal(plain.constructor, pr.HashStore);
});

test("answers of a wrong type are refused, and what is expected is said", async () => {
  const wrong = (method, value) => {
    return new pr.PrefixStore("p", { ...tableMethods(), [method]: () => value });
  };
  const cases = [
    ["get", ["k"], undefined, /\.get must give bytes or a string, not undefined/],
    ["get", ["k"], 5, /\.get must give bytes or a string, not a number/],
    ["compareSet", ["k", "a", "b"], {}, /\.compareSet must give bytes or a string, not Object/],
    ["add", ["k", 1], "1", /\.add must give an integer, not a string/],
    ["add", ["k", 1], 2n ** 64n, /\.add must give an integer of 64 bits, not 18446744073709551616/],
    ["add", ["k", 1], 1.5, /\.add must give an integer, not 1\.5/],
    ["check", [["k"]], undefined, /\.check must give true or false, not undefined/],
    ["deleteKey", ["k"], null, /\.deleteKey must give true or false, not null/],
    ["listKeys", [], "k", /\.listKeys must give an array of strings, not a string/],
    ["multiGet", [["a", "b"]], ["1"], /\.multiGet must give 2 values, one for each key, not 1/],
  ];
  for (const [method, given, value, message] of cases) {
    await assert.rejects(wrong(method, value)[method](...given), (error) => {
      assert.ok(error instanceof pr.InvalidTypeError, `${method}: ${error}`);
      assert.match(error.message, message);
      return true;
    });
  }
});

test("a method that never answers ends with the store's timeout and its name", async () => {
  const never = () => new Promise(() => {});
  for (const method of ["set", "get", "check", "wait"]) {
    const view = new pr.PrefixStore("p", { ...tableMethods(), [method]: never });
    view.setTimeout(50);
    const given = method === "set" ? ["k", "v"] : [method === "get" ? "k" : ["k"]];
    await assert.rejects(view[method](...given), (error) => {
      assert.ok(error instanceof pr.StoreTimeoutError, `${method}: ${error}`);
      assert.match(error.message, new RegExp(method));
      assert.match(error.message, /p\/k/);
      return true;
    });
  }
});

test("a method that never answers ends the making of a group with its timeout", async () => {
  const never = () => new Promise(() => {});
  for (const method of ["set", "add", "check", "compareSet"]) {
    const store = { ...tableMethods(), [method]: never };
    const late = [
      pr.ProcessGroup.join(store, 0, 2, { timeout: 200 }),
      pr.ProcessGroup.join(new pr.PrefixStore("p", store), 0, 2, { timeout: 200 }),
      pr.initProcessGroup({ store, rank: 0, worldSize: 2, timeout: 200 }),
    ];
    for (const { reason } of await Promise.allSettled(late)) {
      const kinds = [pr.StoreTimeoutError, pr.RendezvousTimeoutError];
      assert.ok(kinds.some((kind) => reason instanceof kind), `${method}: ${reason}`);
    }
    // It is the group's limit, and not the store's from now on.
    assert.equal(new pr.PrefixStore("p", store).timeout, 300_000);
  }
});

test("a rank whose store fails while it joins tells the others", async () => {
  for (const method of ["get", "add", "check", "compareSet", "deleteKey"]) {
    const table = tableMethods();
    const thrown = new RangeError("no luck");
    let hasFailed = false;
    const failing = {
      ...table,
      [method](...given) {
        if (!hasFailed && String(given[0]).includes("/join/")) {
          hasFailed = true;
          throw thrown;
        }
        return table[method](...given);
      },
    };
    const stores = [table, table, failing];
    const joined = stores.map((store, rank) => {
      return pr.ProcessGroup.join(store, rank, 3, { timeout: 60_000 });
    });
    const [first, second, own] = await Promise.allSettled(joined);
    assert.ok(own.reason === thrown, `${method}: ${own.reason}`);
    for (const { reason } of [first, second]) {
      assert.ok(reason instanceof pr.RendezvousError, `${method}: ${reason}`);
      assert.match(reason.message, /rank 2 came to group .*, and failed then: .*no luck/);
    }
  }
});

test("waits for keys that do not come end with their limit", async () => {
  const store = new Table();
  await assert.rejects(store.wait(["none"], { timeout: 30 }), (error) => {
    assert.ok(error instanceof pr.StoreTimeoutError);
    assert.match(error.message, /none/);
    return true;
  });
  await assert.rejects(store.barrier("alone", 2, { timeout: 30 }), /barrier/);
  store.setTimeout(40);
  assert.equal(store.timeout, 40);
  await assert.rejects(store.multiGet(["none"]), pr.StoreTimeoutError);
  await assert.rejects(new pr.PrefixStore("p", store).get("none"), pr.StoreTimeoutError);
  const aborted = store.wait(["none"], { timeout: 0, signal: AbortSignal.timeout(20) });
  await assert.rejects(aborted, { name: "TimeoutError" });
});

test("what is not a store is refused as before", () => {
  const { compareSet, ...five } = tableMethods();
  assert.equal(typeof compareSet, "function");
  class Five {}
  Object.assign(Five.prototype, five);
  for (const store of [new Five(), new Map(), 5]) {
    assert.throws(() => pr.ProcessGroup.join(store, 0, 1), /argument 'store' must be Store/);
  }
  assert.throws(() => new pr.PrefixStore("p", five), /not Object, which has no compareSet/);
  assert.throws(() => pr.ProcessGroup.join(new Five(), 0, 1), /not Five, which has no compareSet/);
});
