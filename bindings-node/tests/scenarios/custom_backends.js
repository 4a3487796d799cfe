// What each rank does in the tests of backends that are written in JavaScript.

import assert from "node:assert/strict";
import { once } from "node:events";
import { Worker } from "node:worker_threads";

import * as pr from "polyrank";

const LIMIT_MS = 30_000;
const told = [];

/** Its ranks exchange everything through the store of their group. */
class OverStore {
  number = 0;
  messages = new Map();

  constructor(store, rank, size) {
    Object.assign(this, { store, rank, size });
  }

  /** The blocks of all ranks. */
  async exchange(blocks) {
    const number = this.number++;
    const lengths = blocks.map((block) => block.byteLength);
    const own = Buffer.concat(blocks.map(({ buffer, byteOffset, byteLength }) => {
      return Buffer.from(buffer, byteOffset, byteLength);
    }));
    await this.store.set(`${number}/${this.rank}`, own);
    await this.store.set(`${number}/${this.rank}/lengths`, JSON.stringify(lengths));
    const all = [];
    for (let rank = 0; rank < this.size; rank += 1) {
      const bytes = await this.store.get(`${number}/${rank}`);
      const cuts = JSON.parse(Buffer.from(await this.store.get(`${number}/${rank}/lengths`)));
      let from = 0;
      all.push(cuts.map((length) => Uint8Array.from(bytes.subarray(from, (from += length)))));
    }
    return all;
  }

  async allreduce([tensor], { reduceOp }) {
    put(tensor, reduced((await this.exchange([tensor])).map(([one]) => one), tensor, reduceOp));
  }

  async reduce([tensor], { reduceOp, rootRank }) {
    const all = await this.exchange([tensor]);
    if (this.rank !== rootRank) return;
    put(tensor, reduced(all.map(([one]) => one), tensor, reduceOp));
  }

  broadcast([tensor], { rootRank }) {
    return this.exchange([tensor]).then((all) => put(tensor, all[rootRank][0]));
  }

  async allgather([outputs], inputs) {
    (await this.exchange(inputs)).forEach(([block], rank) => put(outputs[rank], block));
  }

  async gather(lists, inputs, { rootRank }) {
    assert.equal(lists.length, this.rank === rootRank ? 1 : 0);
    const all = await this.exchange(inputs);
    for (const outputs of lists) all.forEach(([block], rank) => put(outputs[rank], block));
  }

  async scatter([output], [inputs = []], { rootRank }) {
    put(output, (await this.exchange(inputs))[rootRank][this.rank]);
  }

  async reduceScatter([output], [inputs], { reduceOp }) {
    const all = await this.exchange(inputs);
    put(output, reduced(all.map((blocks) => blocks[this.rank]), output, reduceOp));
  }

  async alltoall(outputs, inputs) {
    (await this.exchange(inputs)).forEach((blocks, rank) => put(outputs[rank], blocks[this.rank]));
  }

  async barrier() {
    await this.exchange([]);
  }

  key(way, from, to, tag) {
    const ends = `${way}/${from}/${to}/${tag}`;
    this.messages.set(ends, (this.messages.get(ends) ?? 0) + 1);
    return `${from}/${to}/${tag}/${this.messages.get(ends)}`;
  }

  send([tensor], dst, tag) {
    return this.store.set(this.key("sent", this.rank, dst, tag), tensor);
  }

  async recv([tensor], src, tag) {
    const key = this.key("received", src, this.rank, tag);
    const store = await this.store.clone();
    put(tensor, Uint8Array.from(await store.get(key)));
  }
}

const REDUCTIONS = {
  SUM: (a, b) => a + b,
  MAX: (a, b) => (a > b ? a : b),
  BXOR: (a, b) => a ^ b,
};

function put(tensor, bytes) {
  const { buffer, byteOffset, byteLength } = tensor;
  new Uint8Array(buffer, byteOffset, byteLength).set(new Uint8Array(bytes.buffer));
}

function reduced(parts, { constructor: Elements }, { name }) {
  const arrays = parts.map((part) => new Elements(part.buffer));
  return arrays.reduce((sum, part) => sum.map((value, at) => REDUCTIONS[name](value, part[at])));
}

/** Does some things in uncommon ways. */
class Odd {
  constructor({ store, groupRank, groupSize, timeout, globalRanksInGroup, enableReconfigure }) {
    assert.deepEqual([globalRanksInGroup.length, enableReconfigure], [groupSize, false]);
    Object.assign(this, { store, groupRank, groupSize, timeout });
  }

  async allreduce(tensors, { reduceOp }) {
    this.inner ??= pr.ProcessGroup.join(this.store, this.groupRank, this.groupSize, {
      timeout: this.timeout,
    });
    // The work of another group.
    return (await this.inner).allreduce(tensors, { reduceOp });
  }

  broadcast([tensor]) {
    tensor.fill(99);
    throw new RangeError("no broadcasting");
  }

  reduce() {
    return Promise.reject("not even an error");
  }

  barrier() {
    return new Promise(() => {});
  }

  recvAnysource([tensor], tag) {
    tensor.fill(tag);
    return 1;
  }

  abort() {
    told.push("aborted");
  }

  async shutdown() {
    await (await this.inner)?.shutdown();
    told.push("left");
  }
}

/** Returns and throws what it should not. */
class Careless {
  thrown = 0;

  allreduce([tensor]) {
    return tensor.map((value) => 2 * value);
  }

  async reduce([tensor]) {
    return [tensor.slice()];
  }

  broadcast() {
    return { wait() {} };
  }

  scatter() {
    return "done";
  }

  reduceScatter() {
    return 1;
  }

  async allgather() {
    return true;
  }

  async send() {
    return [7];
  }

  recvAnysource(_, tag) {
    return [1, -1, 0.5, Promise.resolve(3), true, 0][tag];
  }

  async gather([outputs], [input]) {
    outputs[0].set(input);
    return outputs;
  }

  barrier() {
    throw Object.assign(new RangeError("the same text"), { number: this.thrown++ });
  }

  alltoall() {
    throw Object.create(null);
  }
}

pr.registerBackend("careless", () => new Careless());
pr.registerBackend("Over_Store", (store, rank, size) => new OverStore(store, rank, size));
pr.registerBackend("odd", async (context, more) => {
  assert.equal(more, null);
  return new Odd(context);
}, { extendedApi: true, devices: ["cpu", "cuda"] });
pr.registerBackend("dislikes", (store, rank, size) => {
  if (rank === 1) throw new RangeError("not on this rank");
  return new OverStore(store, rank, size);
}, { devices: "cpu" });

/** What the factory of `told` was given as options. */
const given = [];
pr.registerBackend("told", (context, options) => {
  given.push(options);
  return new OverStore(context.store, context.groupRank, context.groupSize);
}, { extendedApi: true });

function over({ store, rank, size }, name, backend = "over_store", timeout = LIMIT_MS) {
  return pr.ProcessGroup.join(new pr.PrefixStore(name, store), rank, size, { backend, timeout });
}

/** Each collective on arrays, against what they must be. */
export async function everything(here) {
  const { rank, size } = here;
  const group = await over(here, "everything");
  const ranks = Array.from({ length: size }, (_, other) => other);
  const root = size - 1;
  const total = (size * (size - 1)) / 2;
  for (const Elements of [Float32Array, Float64Array, Int32Array, Uint8Array, BigInt64Array]) {
    const n = Elements === BigInt64Array ? BigInt : Number;
    const of = (...values) => Elements.from(values, n);
    const tensor = of(rank, 1);
    await group.allreduce(tensor);
    assert.deepEqual(tensor, of(total, size));
    await group.allreduce(of(rank), pr.ReduceOp.MAX);
    const one = of(rank, 2);
    await group.reduce(one, root);
    assert.deepEqual(one, rank === root ? of(total, 2 * size) : of(rank, 2));
    const all = of(rank, 5);
    await group.broadcast(all, root);
    assert.deepEqual(all, of(root, 5));
    const gathered = ranks.map(() => of(0, 0));
    await group.allgather(gathered, of(rank, 3));
    assert.deepEqual(gathered, ranks.map((other) => of(other, 3)));
    const outputs = rank === root ? ranks.map(() => of(0)) : [];
    await group.gather(outputs, of(rank), root);
    assert.deepEqual(outputs, rank === root ? ranks.map((other) => of(other)) : []);
    const part = of(0);
    await group.scatter(part, rank === root ? ranks.map((other) => of(other + 7)) : [], root);
    assert.deepEqual(part, of(rank + 7));
    await group.reduceScatter(part, ranks.map((other) => of(other)));
    assert.deepEqual(part, of(rank * size));
    const swapped = ranks.map(() => of(0));
    await group.alltoall(swapped, ranks.map((other) => of(10 * rank + other)));
    assert.deepEqual(swapped, ranks.map((other) => of(10 * other + rank)));
  }
  const mean = Float64Array.of(rank);
  await group.allreduce(mean, pr.ReduceOp.AVG);
  assert.equal(mean[0], total / size);
  // Received first, sent afterwards.
  const [got, work] = [Int32Array.of(0), null];
  const received = group.recv([got], (rank + size - 1) % size, 3);
  await group.send([Int32Array.of(rank)], (rank + 1) % size, 3);
  await received;
  assert.deepEqual([got[0], work], [(rank + size - 1) % size, null]);
  await group.barrier();
  const sum = Float32Array.of(rank + 1);
  await group.allreduce(sum);
  await group.shutdown();
  return sum[0];
}

/** Works, promises, errors. */
export async function odd(here) {
  const group = await over(here, "odd", "odd");
  const data = Float32Array.of(1, 2);
  await group.allreduce(data);
  assert.deepEqual(data, Float32Array.of(here.size, 2 * here.size));
  const got = Int32Array.of(0);
  const work = group.recvAnysource([got], 5);
  await work;
  assert.deepEqual([work.sourceRank(), got[0]], [1, 5]);
  const ended = [];
  group.registerCompletionHook(0, ({ name, error }) => ended.push([name, error?.kind]));
  await assert.rejects(group.broadcast(data, 0), (error) => {
    const said = `broadcast (operation 2 of group 'group') on rank ${here.rank}`;
    assert.equal(error.message, `odd: ${said}: RangeError: no broadcasting`);
    assert.ok(error instanceof pr.DistBackendError && error.cause instanceof RangeError);
    return true;
  });
  assert.equal(data[0], here.size, "what failed has not written");
  await assert.rejects(group.reduce(data, 0), /Error: not even an error/);
  await assert.rejects(group.alltoall([data, data.slice()], [data.slice(), data.slice()]), {
    name: "UnsupportedError",
    message: "the backend 'odd' does not support alltoall",
  });
  const kinds = [["BROADCAST", "Backend"], ["REDUCE", "Backend"], ["ALLTOALL", "Unsupported"]];
  assert.deepEqual(ended, kinds);
  // None of that broke the group.
  await group.allreduce(data);
  await group.shutdown();
  assert.deepEqual(told, ["left"]);
  return "over";
}

/** What methods return and throw that they should not. */
export async function careless(here) {
  const group = await over(here, "careless", "careless");
  const data = Float32Array.of(1, 2);
  const calls = {
    allreduce: [() => group.allreduce(data), "Float32Array"],
    reduce: [() => group.reduce(data, 0), "Array"],
    broadcast: [() => group.broadcast(data, 0), "an object with wait()"],
    scatter: [() => group.scatter(data, [data.slice()], 0), "string"],
    reduceScatter: [() => group.reduceScatterSingle(data, data.slice()), "1"],
    allgather: [() => group.allGatherSingle(data, data.slice()), "true"],
    send: [() => group.send([data], 0, 1), "Array"],
    recvAnysource: [() => group.recvAnysource([data], 4), "true"],
  };
  for (const [method, [call, what]] of Object.entries(calls)) {
    await assert.rejects(call(), (error) => {
      const said = `of a backend (returned|promised) ${what.replaceAll("()", "..")}`;
      const expected = new RegExp(`${method} ${said}; expected nothing, a promise or a Work`);
      assert.match(error.message, expected);
      return true;
    });
  }
  // Who sent is a rank of the group, of which there is one.
  for (const [tag, rank] of ["1", "-1", "0.5", "3"].entries()) {
    const said = `recvAnysource of a backend returned ${rank}; expected the sender's rank`;
    await assert.rejects(group.recvAnysource([data], tag), (error) => error.message.includes(said));
  }
  const received = group.recvAnysource([data], 5);
  await received;
  assert.equal(received.sourceRank(), 0);
  const gathered = new Float32Array(2);
  await group.gather([gathered], data, 0);
  assert.deepEqual(gathered, data);
  await assert.rejects(group.alltoall([data], [data.slice()]), /what was thrown has no text/);
  const works = [0, 1, 2].map(() => group.barrier());
  const numbers = [];
  // When the last has failed, all have.
  for (const work of works.reverse()) {
    await work.then(assert.fail, (error) => numbers.push(error.cause.number));
  }
  assert.deepEqual(numbers, [2, 1, 0]);
  await group.shutdown();
  return "over";
}

/** Deadlines and aborts. */
export async function late(here) {
  const group = await over(here, "late", "odd", 200);
  const hooks = [];
  group.registerAbortHook(0, () => hooks.push("failed"));
  await assert.rejects(group.barrier(), (error) => {
    assert.ok(error instanceof pr.CollectiveTimeoutError, String(error));
    assert.match(error.message, /the backend 'odd' had not ended it/);
    assert.deepEqual([error.collective, error.waitingRank], ["barrier", here.rank]);
    return true;
  });
  const next = async () => group.allreduce(new Float32Array(1));
  await assert.rejects(next, pr.CollectiveTimeoutError);
  assert.deepEqual(hooks, ["failed"]);
  const other = await over(here, "aborted", "odd");
  const work = other.barrier();
  await assert.rejects(work.wait({ timeout: 20 }), pr.WaitTimeoutError);
  other.abort();
  await assert.rejects(work, pr.AbortedError);
  while (told.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(told, ["aborted", "aborted"]);
  return "over";
}

/** The default group, and what names are. */
export async function defaultGroup({ store, rank, size }) {
  const options = { store: new pr.PrefixStore("default", store), rank, worldSize: size };
  await pr.initProcessGroup({ backend: "over_store", timeout: LIMIT_MS, ...options });
  assert.deepEqual(pr.getBackend(), "over_store");
  assert.deepEqual(pr.getBackendConfig(), "cpu:over_store,cuda:over_store");
  const gathered = new Array(size).fill(null);
  await pr.allGatherObject(gathered, { rank });
  assert.deepEqual(gathered, Array.from({ length: size }, (_, other) => ({ rank: other })));
  const part = await pr.newGroup([0, 1], { backend: "cpu:odd", timeout: LIMIT_MS });
  if (rank < 2) {
    const data = Float32Array.of(1);
    await pr.allReduce(data, { group: part });
    assert.equal(data[0], 2);
    const served = part.getBackend("cpu");
    assert.deepEqual([served.name(), served.rank(), served.size()], ["odd", rank, 2]);
    assert.deepEqual([served.options.timeout, served.options.backend], [LIMIT_MS, "odd"]);
    assert.equal(served.backendType, pr.ProcessGroup.BackendType.CUSTOM);
    assert.match(String(served), /^DeviceBackend\(odd of .*, rank \d of 2\)$/);
    assert.throws(() => part.getBackend("cuda"), {
      name: "InvalidArgumentError",
      message: /getBackend: no backend of group '.*' serves cuda:0; its backends are cpu:odd/,
    });
    assert.throws(() => part.getBackend(1), /serves cuda:1/);
    assert.throws(() => part.getBackend("tpu"), /'tpu' is not a device/);
  }
  const plain = await pr.newGroup(null, { backend: "tcp", timeout: LIMIT_MS });
  assert.equal(plain.getBackend("cpu").backendType, pr.BackendType.GLOO);
  await pr.destroyProcessGroup();
  assert.throws(() => pr.getBackend(plain), pr.InvalidGroupError);
  names();
  return "over";
}

function names() {
  assert.equal(pr.Backend.OVER_STORE, "over_store");
  assert.equal(pr.parseBackend("Over_Store"), "over_store");
  assert.ok(pr.isBackendAvailable("odd"));
  for (const name of ["ODD", "gloo", "fake"]) {
    assert.throws(() => pr.registerBackend(name, () => {}), {
      name: "DuplicateBackendError",
      message: `Backend ${name.toLowerCase()} already registered`,
    });
  }
  for (const name of ["a:b", "cpu", "-", ""]) {
    const said = { name: "InvalidArgumentError", message: /is not a name for a backend/ };
    assert.throws(() => pr.registerBackend(name, () => {}), said);
  }
  assert.throws(() => pr.registerBackend(undefined, () => {}), pr.InvalidTypeError);
  const onTpus = { devices: ["tpu"] };
  assert.throws(() => pr.registerBackend("tpus", () => {}, onTpus), pr.InvalidArgumentError);
  assert.throws(() => pr.registerBackend("none", 3), pr.InvalidTypeError);
}

/** Options of a group come to the factory, wherever a group is made; elsewhere they are refused. */
export async function options({ store, rank, size }) {
  const place = (name) => ({ store: new pr.PrefixStore(name, store), rank, worldSize: size });
  const tree = { channels: 4, my_rate: 0.5, nested: { deep: [1, "a"], bytes: Uint8Array.of(7) } };
  const plain = { timeout: LIMIT_MS };
  await pr.initProcessGroup({ backend: "told", pgOptions: { ...tree, ...plain }, ...place("one") });
  assert.equal(pr.defaultGroup().timeout, LIMIT_MS);
  const child = await pr.newGroup(null, { pgOptions: { channels: 5 } });
  const part = await pr.splitGroup(child, { splitRanks: [[0, 1]], pgOptions: plain });
  const inherited = await child.splitGroup([1, 0]);
  await part.splitGroup([0, 1], { opts: { channels: 6 } });
  const alone = [new pr.PrefixStore("two", store), rank, size];
  await pr.ProcessGroup.join(...alone, { backend: "told", pgOptions: { channels: 7 } });
  await pr.ProcessGroup.join(...alone, { backend: "told", groupName: "none" });
  const own = [5, plain, 5, 6, 7].map((it) => (it === plain ? it : { channels: it }));
  assert.deepEqual(given.splice(0), [{ ...tree, ...plain }, ...own, null]);
  const sum = Float32Array.of(1);
  await inherited.allreduce(sum);
  assert.equal(sum[0], 2);
  const refused = (message) => ({ name: "InvalidTypeError", message });
  const elsewhere = pr.newGroup(null, { backend: "tcp", pgOptions: { channels: 5 } });
  const unknown = /must be BackendOptions, which has no 'channels'.*cpu:tcp/;
  await assert.rejects(elsewhere, refused(unknown));
  const wrong = { timeout: "soon", channels: 5 };
  assert.throws(() => pr.newGroup(null, { pgOptions: wrong }), refused(/timeout is number/));
  assert.throws(() => pr.newGroup(null, { pgOptions: { then() {} } }), pr.InvalidTypeError);
  const dropped = pr.newGroup(null, { backend: "over_store", pgOptions: { channels: 5 } });
  await assert.rejects(dropped, /takes no options, and the group was given channels/);
  assert.deepEqual(given, []);
  await pr.destroyProcessGroup();
  return "over";
}

/** A factory that throws on rank 1. */
export async function disliked(here) {
  return over(here, "disliked", "dislikes").then(() => "made", (error) => error.message);
}

/** One process as a rank of many. */
export async function fake() {
  await pr.initProcessGroup({ backend: "fake", rank: 3, worldSize: 64 });
  assert.deepEqual([pr.getRank(), pr.getWorldSize(), pr.getBackend()], [3, 64, "fake"]);
  const data = Float64Array.of(1, 2);
  await pr.allReduce(data);
  assert.deepEqual(data, Float64Array.of(1, 2));
  const outputs = Array.from({ length: 64 }, () => new Float64Array(2));
  await pr.allGather(outputs, data);
  for (const output of outputs) assert.deepEqual(output, data);
  const part = await pr.newGroup([3, 5]);
  assert.deepEqual([part.rank(), part.size()], [0, 2]);
  await pr.monitoredBarrier();
  const all = new Array(64).fill(null);
  await pr.allGatherObject(all, "me");
  assert.deepEqual(all, new Array(64).fill("me"));
  await assert.rejects(pr.broadcastObjectList([1], { src: 0 }), pr.UnsupportedError);
  await pr.destroyProcessGroup();
  return "over";
}

/** A backend whose thread is gone. */
export async function gone(here) {
  const text = `
    import * as pr from "polyrank";
    pr.registerBackend("of_worker", () => ({ barrier() {} }));
    process.exit();
  `;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(text)}`));
  await once(worker, "exit").catch(() => {});
  if (!pr.isBackendAvailable("of_worker")) return "over";
  await assert.rejects(over(here, "gone", "of_worker"), /the thread that registered it has ended/);
  return "over";
}
