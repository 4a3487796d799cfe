// Arguments over, answers back: options and positions, units, handles, objects, signals, groups
// that this process is not in. The native half is a stand-in that writes down what it is told.

import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import test from "node:test";

import { nativeError, standIn } from "./standin.js";

const { pr, native } = await standIn();
native.answers.set("HASH_STORE_NEW", { type: "HashStore" });
native.answers.set("PROCESS_GROUP_NEW", { type: "ProcessGroup", id: 7 });
native.answers.set("DISTRIBUTED_DEFAULT_GROUP", { type: "ProcessGroup", id: 8 });

const store = new pr.HashStore();
const last = () => native.calls.at(-1);
const duration = (ms) => ({ kind: "duration", ms });

test("options are one object behind the others, in camelCase, times in ms", async () => {
  await pr.TCPStore.connect("127.0.0.1", 0, {
    isMaster: true,
    worldSize: undefined,
    timeout: 5000,
  });
  const { key, args, keywords } = last();
  assert.equal(key, "TCP_STORE_NEW");
  assert.deepEqual(args, ["127.0.0.1", 0]);
  assert.deepEqual(keywords, { is_master: true, timeout: duration(5000) });

  const array = new Float32Array(2);
  pr.broadcast(array, { src: 3, groupSrc: null });
  assert.deepEqual(last().keywords, { src: 3, group_src: null });
  assert.deepEqual(last().args, [{ kind: "tensor", index: 0 }]);
  assert.deepEqual(last().infos, [11]);
});

test("what may be given by position may be", async () => {
  const pg = await pr.ProcessGroup.join(store, 0, 1);
  const array = new Float64Array(2);
  pg.allreduce(array, pr.ReduceOp.MAX, { timeout: 7 });
  assert.deepEqual(last().args[1], { kind: "reduceOp", code: 4 });
  assert.deepEqual(last().keywords, { timeout: duration(7) });
  pg.allreduce(array, pr.premulSum(0.5), 9);
  assert.deepEqual(last().args.slice(1), [
    { kind: "reduceOp", code: 8, factor: 0.5 },
    duration(9),
  ]);
  pg.allreduce([array], { reduceOp: pr.ReduceOp.MIN });
  assert.deepEqual(last().keywords, { reduce_op: { kind: "reduceOp", code: 3 } });
  pg.setTimeout(250);
  assert.deepEqual(last().args, [duration(250)]);
  await store.wait(["a"], { timeout: 3 });
  assert.deepEqual(last().keywords, { timeout: duration(3) });
  await store.wait(["a"], 4);
  assert.deepEqual(last().args, [["a"], duration(4)]);
  pr.getRank(undefined);
  assert.deepEqual(last().args, []);
  pr.getRank(pg);
  assert.equal(last().args[0].kind, "handle");
  await pr.newGroup([0, 1], { pgOptions: { groupName: "x", timeout: 8 } });
  assert.deepEqual(last().args, [[0, 1]]);
  const members = { group_name: "x", timeout: duration(8) };
  const { bytes, ...given } = last().keywords.pg_options;
  assert.deepEqual(given, { kind: "options", options: { kind: "record", members } });
  // What a backend that is written in JavaScript is given: a map of two, in CBOR.
  const cbor = [0xa2, 0x69, ...new TextEncoder().encode("groupName"), 0x61, 0x78];
  assert.deepEqual([...bytes], [...cbor, 0x67, ...new TextEncoder().encode("timeout"), 8]);
});

test("what no call takes is refused before the native half sees it", () => {
  const before = native.calls.length;
  const least = -(2n ** 63n);
  for (const beyond of [2n ** 63n, least - 1n, 2n ** 200n]) {
    const refused = (where) => {
      return { kind: "InvalidArgument", message: new RegExp(`^${where}: ${beyond}n is beyond 64`) };
    };
    assert.throws(() => store.add("k", beyond), refused("add\\(\\): argument 2"));
    const broadcast = () => pr.broadcast(new Uint8Array(1), { src: beyond });
    assert.throws(broadcast, refused("broadcast\\(\\): option 'src'"));
  }
  const circle = [];
  circle.push(circle);
  const nested = { kind: "InvalidType", message: /nested deeper than 8 levels/ };
  assert.throws(() => store.multiGet(circle), nested);
  assert.throws(() => pr.allReduce(circle), nested);
  const deep = { a: { a: { a: { a: { a: { a: { a: { a: {} } } } } } } } };
  assert.throws(() => pr.newGroup([0], { pgOptions: deep }), nested);
  assert.equal(native.calls.length, before);
  pr.broadcast(new Uint8Array(1), { src: least });
  assert.deepEqual(last().keywords, { src: least });
});

test("every array is a tensor of its type", () => {
  const codes = new Map([
    [Uint8Array, 1],
    [Uint8ClampedArray, 1],
    [Int8Array, 2],
    [Uint16Array, 3],
    [Int16Array, 4],
    [Uint32Array, 5],
    [Int32Array, 6],
    [BigUint64Array, 7],
    [BigInt64Array, 8],
    [Float32Array, 11],
    [Float64Array, 12],
  ]);
  for (const [array, code] of codes) {
    pr.allReduce(new array(3));
    assert.deepEqual(last().infos, [code], array.name);
  }
  pr.allReduce(Buffer.alloc(3));
  assert.deepEqual(last().infos, [1]);
  pr.allReduce(new DataView(new ArrayBuffer(8), 2, 3));
  assert.deepEqual(last().infos, [1]);
  assert.equal(native.works.at(-1).bytes, 3);
  pr.allReduce(new Float32Array(new SharedArrayBuffer(8)));
  assert.equal(native.works.at(-1).bytes, 8);
});

test("a Tensor says what an array cannot", async () => {
  const bits = new Uint16Array(12);
  const view = pr.tensor(bits, { dtype: "bf16", shape: [2, 3], strides: [6, 1], offset: 2 });
  assert.equal(await pr.allReduce(view), view);
  assert.deepEqual(last().infos, [{ dtype: 10, shape: [2, 3], strides: [6, 1], offset: 2 }]);
  assert.deepEqual([view.dtype, view.size, view.byteLength, view.offset], ["bf16", 6, 12, 2]);
  assert.equal(view.data, bits);
  const complex = pr.tensor(new Float32Array(6), { dtype: "complex64" });
  assert.deepEqual([complex.dtype, complex.shape], ["complex64", [3]]);

  const owned = pr.alloc("f32", [2, 2]);
  owned.data.fill(1);
  assert.deepEqual([...owned.data], [1, 1, 1, 1]);
  assert.deepEqual(owned.strides, [2, 1]);
  pr.allReduce(owned);
  assert.equal(native.works.at(-1).bytes, 0, "owned memory is not copied");
  const { memory } = last().infos[0];
  assert.equal(memory.view().byteLength, 16);
  pr.allReduce(owned.data.subarray(1));
  assert.equal(native.works.at(-1).bytes, 0, "arrays over owned memory are not copied");
  assert.deepEqual(last().infos, [{ dtype: 11, shape: [3], offset: 1, memory }]);

  const wrong = [
    () => pr.tensor([1, 2]),
    () => pr.tensor(new ArrayBuffer(4)),
    () => pr.tensor(new Uint8Array(3), { dtype: "f32" }),
    () => pr.tensor(new Uint8Array(4), { dtype: "f31" }),
    () => pr.tensor(new Uint8Array(4), { shape: [5] }),
    () => pr.tensor(new Uint8Array(4), { shape: [2, 2], strides: [3, 1] }),
    () => pr.tensor(new Uint8Array(4), { shape: [2], strides: [1, 1] }),
    () => pr.tensor(new Uint8Array(4), { offset: 5 }),
    () => pr.tensor(new Uint8Array(4), { shape: [-1] }),
    () => pr.tensor(new Uint8Array(4), { shape: 4 }),
    () => pr.alloc("f32", [1.5]),
    () => pr.alloc("f32", [2 ** 52, 2 ** 52, 0]),
    () => pr.alloc("f32", [0, 2 ** 51]),
    () => pr.alloc("u8", [2 ** 40, 2 ** 13]),
    () => pr.tensor(new Uint8Array(4), { shape: [0, 2 ** 52, 2] }),
    () => new pr.Tensor(),
  ];
  for (const call of wrong) {
    assert.throws(call, (error) => /^Invalid(Argument|Type)Error$/.test(error.name), `${call}`);
  }
  assert.deepEqual(pr.tensor(new Uint8Array(4), { shape: [0, 9] }).size, 0);
  native.maxMemoryBytes = 2 ** 31 - 1;
  assert.throws(() => pr.alloc("f32", [2 ** 20, 2 ** 9, 0]), { kind: "InvalidArgument" });
  assert.throws(() => pr.tensor(new Uint8Array(4), { shape: [0], strides: [2 ** 32] }), /at most/);
  native.maxMemoryBytes = undefined;
});

test("stores take bytes of any kind and give numbers that are exact", async () => {
  await store.set("k", new Uint16Array([1, 2]));
  assert.deepEqual(last().args, ["k", new Uint8Array([1, 0, 2, 0])]);
  await store.set("k", new Uint8Array([5]).buffer);
  assert.deepEqual(last().args, ["k", new Uint8Array([5])]);
  native.answers.set("STORE_ADD", 41n);
  assert.equal(await store.add("k", 1n), 41n);
  assert.equal(await store.add("k", 1), 41);
  native.answers.set("STORE_ADD", 41);
  assert.equal(await store.add("k", 1n), 41n);
  native.answers.set("STORE_ADD", 2n ** 53n + 1n);
  assert.equal(await store.add("k", 1n), 2n ** 53n + 1n);
  const rounded = /took effect.* 9007199254740993:.*BigInt/;
  const refused = { name: "InvalidArgumentError", message: rounded };
  await assert.rejects(store.add("k", 1), refused);
  const count = native.calls.length;
  for (const inexact of [2 ** 53, -(2 ** 53), 1e300]) {
    const expected = { name: "InvalidArgumentError", message: /beyond 2\^53.*BigInt/ };
    assert.throws(() => store.add("k", inexact), expected);
  }
  assert.equal(native.calls.length, count, "nothing was added");
  native.answers.set("STORE_GET", new Uint8Array([1]));
  assert.deepEqual(await store.get("k"), new Uint8Array([1]));
  native.answers.set("STORE_GET", () => Promise.reject(nativeError("StoreTimeout", "late")));
  await assert.rejects(store.get("k"), (error) => error instanceof pr.StoreTimeoutError);
  native.answers.set("STORE_GET", nativeError("InvalidType", "get() takes a key"));
  assert.throws(() => store.get(5), { name: "InvalidTypeError" });
  assert.equal(await store.set("k", "v"), undefined);
});

test("a signal ends a request", async () => {
  const controller = new AbortController();
  native.answers.set("STORE_LIST_KEYS", () => new Promise(() => {}));
  const keys = store.listKeys({ signal: controller.signal });
  const { cancel, keywords } = last();
  assert.equal(keywords, null);
  const rejected = assert.rejects(keys, { name: "AbortError" });
  controller.abort();
  await rejected;
  assert.deepEqual(native.cancelled, [cancel]);
  const count = native.calls.length;
  await assert.rejects(store.listKeys({ signal: controller.signal }), { name: "AbortError" });
  assert.equal(native.calls.length, count);
  native.answers.set("STORE_NUM_KEYS", 3);
  const fine = new AbortController();
  assert.equal(await store.numKeys({ signal: fine.signal }), 3);
  fine.abort();
  assert.equal(native.cancelled.length, 1);
});

test("one process group is one object", async () => {
  assert.equal(pr.defaultGroup(), pr.defaultGroup());
  assert.equal(await pr.initProcessGroup({ backend: "tcp" }), pr.defaultGroup());
  assert.ok(pr.defaultGroup() instanceof pr.ProcessGroup);
  assert.throws(() => new pr.ProcessGroup(), /made by ProcessGroup\.join/);
  assert.throws(() => new pr.TCPStore("127.0.0.1", 0), /made by TCPStore\.connect/);
  assert.ok(store instanceof pr.Store);
});

test("the default group is made once at a time", async () => {
  let answer;
  const key = "DISTRIBUTED_INIT_PROCESS_GROUP";
  native.answers.set(key, () => new Promise((resolve) => (answer = resolve)));
  const first = pr.initProcessGroup({ backend: "tcp" });
  await assert.rejects(pr.initProcessGroup({ backend: "tcp" }), pr.AlreadyInitializedError);
  answer();
  assert.equal(await first, pr.defaultGroup());

  // One that was given up is waited for: the native half is not through with it yet.
  const controller = new AbortController();
  const given = pr.initProcessGroup({ signal: controller.signal });
  const endFirst = answer;
  controller.abort();
  await assert.rejects(given, { name: "AbortError" });
  const count = native.calls.length;
  const next = pr.initProcessGroup();
  await Promise.resolve();
  assert.equal(native.calls.length, count);
  endFirst();
  while (native.calls.length === count) await Promise.resolve();
  answer();
  await next;

  native.answers.set(key, nativeError("InvalidType", "no such form"));
  assert.throws(() => pr.initProcessGroup(5), pr.InvalidTypeError);
  native.answers.delete(key);
  await pr.initProcessGroup();
});

test("a method without its object says so", () => {
  const { allreduce, getGroupStore } = pr.defaultGroup();
  const { add } = store;
  const count = native.calls.length;
  for (const call of [
    () => allreduce(new Float32Array(1)),
    () => getGroupStore(),
    () => add("k", 1),
    () => pr.ProcessGroup.prototype.groupName,
  ]) {
    assert.throws(call, { name: "InvalidTypeError", message: /needs its object/ });
  }
  assert.throws(() => allreduce(new Float32Array(1)), /group\.allreduce\.bind\(group\)/);
  assert.equal(native.calls.length, count);
});

test("a view is what it is, whatever its own properties say", async () => {
  const array = Float32Array.of(1, 2);
  for (const name of ["length", "byteLength", "byteOffset", "buffer"]) {
    Object.defineProperty(array, name, { value: 77 });
  }
  Object.defineProperty(array, Symbol.toStringTag, { value: "Int8Array" });
  await pr.allReduce(array);
  const { infos } = last();
  await pr.allReduce(Float32Array.of(1));
  assert.deepEqual(infos, last().infos);
  await store.set("k", array);
  assert.deepEqual(last().args[1], new Uint8Array(Float32Array.of(1, 2).buffer));
});

test("an array whose memory was given away before the call is refused", async () => {
  const count = native.calls.length;
  for (const make of [
    () => new Float32Array(4),
    () => new Uint8Array(4),
    () => new DataView(new ArrayBuffer(4)),
    () => new ArrayBuffer(4),
  ]) {
    const array = make();
    const buffer = array.buffer ?? array;
    structuredClone(buffer, { transfer: [buffer] });
    const expected = { kind: "InvalidArgument", message: /given away/ };
    if (ArrayBuffer.isView(array)) assert.throws(() => pr.allReduce(array), expected);
    assert.throws(() => store.set("k", array), expected);
  }
  assert.equal(native.calls.length, count);
});

test("a group that this process is not in makes functions do nothing", async () => {
  const outside = await pr.newGroup([1]);
  assert.equal(outside, pr.NON_GROUP_MEMBER);
  const count = native.calls.length;
  const array = new Float32Array(2);
  assert.equal(await pr.allReduce(array, { group: outside }), array);
  assert.match(native.warnings.at(-1), /allReduce .*does not belong to the given group/);
  assert.equal(pr.getRank(outside), -1);
  assert.equal(pr.getWorldSize(outside), -1);
  assert.equal(await pr.recvObjectList([null], { group: outside }), -1);
  assert.equal(await pr.monitoredBarrier({ group: outside }), undefined);
  assert.equal(await pr.destroyProcessGroup(outside), undefined);
  assert.throws(() => pr.getBackend(outside), pr.InvalidGroupError);
  assert.equal(native.calls.length, count);
});

test("what only calls make has no constructor", () => {
  assert.throws(() => new pr.DeviceBackend(), pr.InvalidTypeError);
  assert.throws(() => new pr.Window(), pr.InvalidTypeError);
});

test("the current group", () => {
  const pg = pr.defaultGroup();
  native.answers.set("DISTRIBUTED_DEFAULT_GROUP", nativeError("NotInitialized", "no group"));
  assert.throws(() => pr.currentProcessGroup(), pr.NotInitializedError);
  assert.equal(pr.withProcessGroup(pg, () => pr.currentProcessGroup()), pg);
  assert.throws(() => pr.withProcessGroup(store, () => 1), pr.InvalidTypeError);
  native.answers.set("DISTRIBUTED_DEFAULT_GROUP", { type: "ProcessGroup", id: 8 });
});

test("ranks may meet by the user's own URLs", async () => {
  const seen = [];
  pr.registerRendezvousHandler("mine", async (url, request) => {
    seen.push([url, request]);
    return { store, rank: 1, worldSize: 2 };
  });
  assert.throws(() => pr.registerRendezvousHandler("mine", () => {}), pr.RendezvousError);
  assert.throws(() => pr.registerRendezvousHandler("tcp", () => {}), pr.RendezvousError);
  const met = await pr.rendezvous("mine://here", { worldSize: 2 });
  assert.deepEqual({ ...met, store: met.store === store }, { store: true, rank: 1, worldSize: 2 });
  await pr.initProcessGroup({ initMethod: "mine://here", timeout: 5 });
  const joined = native.calls.findLast(({ key }) => key === "DISTRIBUTED_INIT_PROCESS_GROUP");
  const { store: given, ...others } = joined.keywords;
  assert.equal(given.typeName, "HashStore");
  assert.deepEqual(others, { rank: 1, world_size: 2, timeout: duration(5) });
  assert.deepEqual(seen.at(-1), ["mine://here", { rank: -1, worldSize: -1, timeout: 5 }]);
  native.answers.set("DISTRIBUTED_RENDEZVOUS", {
    store: { type: "HashStore" },
    rank: 0,
    worldSize: 1,
  });
  assert.ok((await pr.rendezvous("env://")).store instanceof pr.HashStore);
});

test("messages can be issued together", async () => {
  const [here, there] = [new Uint8Array(1), new Uint8Array(2)];
  // As if the first rank of the group were rank 10 of all.
  native.answers.set("DISTRIBUTED_GET_GROUP_RANK", ({ args }) => args[1] - 10);
  native.answers.set("DISTRIBUTED_GET_GLOBAL_RANK", ({ args }) => args[1] + 10);
  native.answers.set("DISTRIBUTED_DEFAULT_GROUP", { type: "ProcessGroup", id: 8 });
  const group = pr.currentProcessGroup();
  const works = pr.batchIsendIrecv([
    new pr.P2POp(pr.isend, here, 11, { tag: 4 }),
    new pr.P2POp(pr.irecv, there, null, { groupPeer: 2, group }),
  ]);
  const [send, receive] = native.calls.slice(-2).map(({ key, keywords }) => {
    return [key, { ...keywords, group: keywords.group.handle.id }];
  });
  assert.deepEqual(send, ["DISTRIBUTED_ISEND", { group_dst: 1, tag: 4, group: 8 }]);
  assert.deepEqual(receive, ["DISTRIBUTED_IRECV", { group_src: 2, tag: 0, group: 8 }]);
  assert.deepEqual(await Promise.all(works), [undefined, there]);
  assert.throws(() => new pr.P2POp(pr.allReduce, here, 1), pr.InvalidArgumentError);
  assert.throws(() => new pr.P2POp(pr.isend, here), pr.InvalidArgumentError);
  assert.throws(() => pr.batchIsendIrecv([5]), pr.InvalidTypeError);
  const before = native.calls.filter(({ key }) => key === "DISTRIBUTED_ISEND").length;
  const [ours, others] = [group, pr.NON_GROUP_MEMBER].map((one) => {
    return new pr.P2POp(pr.isend, here, null, { groupPeer: 0, group: one });
  });
  const refused = { kind: "InvalidArgument", message: /All ops need to use the same group: .*position 1/ };
  assert.throws(() => pr.batchIsendIrecv([ours, others]), refused);
  assert.equal(native.calls.filter(({ key }) => key === "DISTRIBUTED_ISEND").length, before);
});

test("a message that is not sent yet says whose it is", () => {
  const [group, other] = [pr.currentProcessGroup(), pr.NON_GROUP_MEMBER];
  const tensor = new Float32Array(1);
  const made = (peer, options) => {
    const { op, ...facts } = new pr.P2POp(pr.irecv, tensor, peer, options);
    assert.equal(op, pr.irecv);
    return facts;
  };
  const facts = { tensor, group, tag: 0, peer: 12, groupPeer: 2 };
  assert.deepEqual(made(12), facts);
  assert.deepEqual(made(12, { group: null }), facts);
  assert.deepEqual(made(null, { groupPeer: 2, tag: 3 }), { ...facts, tag: 3 });
  assert.deepEqual(made(12, { group: other }), { ...facts, group: other, groupPeer: undefined });
  const refusals = [
    [[0, { groupPeer: 0 }], "InvalidArgumentError", /one of 'peer' and 'groupPeer', not both/],
    [[0, { group: 5 }], "InvalidTypeError", /'group' must be a ProcessGroup, not number/],
    [[0, { tag: -1 }], "InvalidArgumentError", /'tag' must be an integer from 0 .*, not -1/],
    [["x"], "InvalidTypeError", /'peer' must be an integer from 0 .*, not string/],
  ];
  for (const [given, name, message] of refusals) {
    assert.throws(() => made(...given), { name, message });
  }
});

test("members of a group are any strings, and what is wrong with options is said", async () => {
  const pg = await pr.ProcessGroup.join(store, 0, 1);
  const passed = async (options) => {
    await pg.reconfigure(options);
    const call = native.calls.findLast(({ key }) => key === "PROCESS_GROUP_RECONFIGURE");
    return call.args[0].members;
  };
  const [a, list] = [{ uuid: 1 }, ["a", "b"]];
  assert.deepEqual(await passed({ ...a, handles: list }), { ...a, handles: list });
  const unordered = { ...a, handles: list, ordered: false };
  assert.deepEqual(await passed({ ...a, handles: new Set(list) }), unordered);
  assert.deepEqual(await passed({ ...a, handles: list.values() }), { ...a, handles: list });
  const wrong = [
    [{ uuid: "a", handles: list }, "member 'uuid' of argument 'opts' must be an integer, not str"],
    [{ uuid: 1.5, handles: list }, "member 'uuid' of argument 'opts' must be an integer, not 1.5"],
    [{ handles: list }, "member 'uuid' of argument 'opts' must be an integer, not undefined"],
    [{ ...a, handles: "ab" }, "member 'handles' .* must be a list or a Set of strings, not string"],
    [{ ...a, handles: ["a", 4] }, "member 'handles' .* of strings, not array with number"],
    [{ ...a, handles: list, ordered: 1 }, "member 'ordered' .* must be boolean, not 1"],
    [{ ...a, handles: list, order: 1 }, "argument 'opts' has no member 'order'; there are uuid, "],
  ];
  for (const [options, text] of wrong) {
    const message = new RegExp(`^reconfigure\\(\\): ${text}`);
    assert.throws(() => pg.reconfigure(options), { name: "InvalidTypeError", message });
  }
});

test("groups and stores are left at the end of a block", async () => {
  const released = [];
  native.answers.set("HASH_STORE_NEW", { type: "HashStore", release: () => released.push(1) });
  new pr.HashStore()[Symbol.dispose]();
  await new pr.HashStore()[Symbol.asyncDispose]();
  assert.equal(released.length, 2);
  const pg = await pr.ProcessGroup.join(store, 0, 1);
  await pg[Symbol.asyncDispose]();
  assert.equal(last().key, "DISTRIBUTED_DESTROY_PROCESS_GROUP");
  for (const kind of ["InvalidGroup", "NotInitialized"]) {
    native.answers.set("DISTRIBUTED_DESTROY_PROCESS_GROUP", () => {
      return Promise.reject(nativeError(kind, "unknown"));
    });
    pg[Symbol.dispose]();
    await turn();
    await turn();
    assert.equal(last().key, "PROCESS_GROUP_SHUTDOWN");
    assert.equal(last().self.id, 7);
  }
});
