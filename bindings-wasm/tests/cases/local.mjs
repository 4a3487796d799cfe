// What one realm does by itself: a store in memory, groups of ranks that live in the same realm.

import { equal, fails, ok } from "../check.mjs";

/** The ranks of a group in this realm. */
async function join(pr, size, options = {}) {
  const store = new pr.HashStore();
  const join = (_, rank) => pr.ProcessGroup.join(store, rank, size, options);
  return Promise.all(Array.from({ length: size }, join));
}

async function leave(groups) {
  await Promise.all(groups.map((group) => group.shutdown()));
}

export const local = {
  async "a store in memory keeps, counts, waits and times out"(pr) {
    const store = new pr.HashStore();
    await store.set("key", "value");
    equal(new TextDecoder().decode(await store.get("key")), "value");
    equal(await store.add("count", 3), 3);
    equal(await store.add("count", -1), 2);
    equal(await store.check(["key", "nothing"]), false);
    const late = store.get("late");
    await store.set("late", new Uint8Array([1, 2]));
    equal(await late, new Uint8Array([1, 2]));
    await fails("StoreTimeout", "nothing", store.wait(["nothing"], 20));
    await fails("NotACounter", "key", store.add("key", 1));
    equal(await store.add("huge", 2n ** 53n), 2n ** 53n);
    await fails("InvalidArgument", "9007199254740993", store.add("huge", 1));
    await Promise.all([1, 2, 3].map((place) => store.append("log", String(place))));
    equal(new TextDecoder().decode(await store.get("log")), "123");
    const inside = new pr.PrefixStore("in", store);
    await inside.set("side", "x");
    equal(await store.check(["in/side"]), true);
  },

  async "hints hold for what does not say otherwise"(pr) {
    const groups = await join(pr, 2);
    const fine = 1 + 1 / 512;
    const sums = async () => {
      const tensors = groups.map((_, rank) => Float32Array.of(rank === 0 ? fine : 0));
      await Promise.all(groups.map((group, rank) => group.allreduce(tensors[rank])));
      return tensors.map(([sum]) => sum);
    };
    equal(await sums(), [fine, fine]);
    for (const group of groups) group.setHints({ compress: "bf16" });
    equal(groups[1].hints, { compress: "bf16" });
    equal(await sums(), [1, 1]);
    await leave(groups);
  },

  async "objects with the methods of a store are stores"(pr) {
    const inner = new pr.HashStore();
    const methods = {};
    for (const name of ["set", "get", "add", "check", "compareSet", "deleteKey", "listKeys"]) {
      methods[name] = (...given) => inner[name](...given);
    }
    class Own extends pr.Store {
      constructor() {
        super();
        Object.assign(this, methods);
      }
    }
    for (const store of [methods, new Own()]) {
      const view = new pr.PrefixStore("own", store);
      equal(view.underlyingStore === store, true);
      await view.multiSet(["a", "b"], ["1", "2"]);
      equal(await view.multiGet(["b", "a"]), [Uint8Array.of(50), Uint8Array.of(49)]);
      equal(await view.hasExtendedApi(), false);
      await fails("StoreTimeout", "none", view.wait(["none"], { timeout: 20 }));
      await fails("Unsupported", "append", view.append("a", "x"));
      const join = (_, rank) => pr.ProcessGroup.join(store, rank, 2, { groupName: "own" });
      const groups = await Promise.all(Array.from({ length: 2 }, join));
      const sums = groups.map((_, rank) => Float32Array.of(rank + 1));
      await Promise.all(groups.map((group, rank) => group.allreduce(sums[rank])));
      for (const sum of sums) equal(sum, Float32Array.of(3));
      await leave(groups);
      for (const key of await inner.listKeys()) await inner.deleteKey(key);
    }
    class Louder extends pr.HashStore {
      async get(key) {
        return new TextDecoder().decode(await super.get(key)).toUpperCase();
      }
    }
    const view = new pr.PrefixStore("p", new Louder());
    await view.set("k", "quiet");
    equal(new TextDecoder().decode(await view.get("k")), "QUIET");
    const wrong = new pr.PrefixStore("p", { ...methods, get: () => undefined });
    await fails("InvalidType", "must give bytes or a string, not undefined", wrong.get("k"));
  },

  async "a source rank is known of what was received, and of nothing else"(pr) {
    const groups = await join(pr, 2);
    const got = new Int32Array(1);
    const receive = groups[0].recvAnysource([got], { tag: 1 });
    await fails("InvalidArgument", "sourceRank", () => receive.sourceRank());
    await groups[1].send([Int32Array.of(5)], 0, { tag: 1 });
    await receive;
    equal([got[0], receive.sourceRank()], [5, 1]);
    const works = groups.map((group) => group.allreduce(Int32Array.of(1)));
    await Promise.all(works);
    for (const work of works) {
      await fails("InvalidArgument", "sourceRank", () => work.sourceRank());
    }
    await leave(groups);
  },

  async "a backend that is written in JavaScript is told the options of its group"(pr) {
    // Its registration stays, and with it what it is told.
    const told = (globalThis.toldOptions ??= []);
    if (!pr.isBackendAvailable("told")) {
      const make = (context, options) => (told.push(options), { shutdown() {} });
      pr.registerBackend("told", make, { extendedApi: true });
    }
    told.length = 0;
    const pgOptions = { channels: 4, timeout: 500 };
    const [alone] = await join(pr, 1, { backend: "told", pgOptions });
    equal([told, alone.timeout], [[pgOptions], 500]);
    await leave([alone]);
    const said = "must be BackendOptions, which has no 'channels'";
    await fails("InvalidType", said, () => join(pr, 1, { pgOptions }));
  },

  async "backends may be written in JavaScript"(pr) {
    const ended = [];
    class OverStore {
      calls = 0;
      constructor(store, rank, size) {
        Object.assign(this, { store, rank, size });
      }
      async allreduce([tensor], { reduceOp, timeout }) {
        equal([reduceOp.name, timeout > 0], ["SUM", true]);
        const key = (rank) => `${this.calls}/${rank}`;
        await this.store.set(key(this.rank), tensor);
        const parts = [];
        for (let rank = 0; rank < this.size; rank += 1) parts.push(await this.store.get(key(rank)));
        this.calls += 1;
        tensor.fill(0);
        for (const { buffer } of parts) {
          new tensor.constructor(buffer).forEach((value, index) => (tensor[index] += value));
        }
      }
      broadcast() {
        throw new RangeError("never");
      }
      barrier() {
        return new Promise(() => {});
      }
      recvAnysource([tensor], tag) {
        tensor.fill(tag);
        return 1;
      }
      shutdown() {
        ended.push(this.rank);
      }
    }
    if (!pr.isBackendAvailable("over_store")) {
      pr.registerBackend("Over_Store", (store, rank, size) => new OverStore(store, rank, size));
    }
    equal(pr.Backend.OVER_STORE, "over_store");
    await fails("DuplicateBackend", "over_store", () => pr.registerBackend("OVER_STORE", () => {}));
    await fails("BackendUnavailable", "fake", join(pr, 1, { backend: "fake" }));
    const groups = await join(pr, 3, { backend: "over_store", timeout: 20_000 });
    const all = (act) => Promise.all(groups.map((group, rank) => act(group, rank)));
    const sums = groups.map((_, rank) => Float32Array.of(rank + 1, 1));
    await all((group, rank) => group.allreduce(sums[rank]));
    for (const sum of sums) equal(sum, Float32Array.of(6, 3));
    const mean = groups.map((_, rank) => Float64Array.of(rank));
    await all((group, rank) => group.allreduce(mean[rank], pr.ReduceOp.AVG));
    for (const one of mean) equal(one, Float64Array.of(1));
    const told = "broadcast (operation 3 of group 'group') on rank 1: RangeError: never";
    await fails("Backend", told, groups[1].broadcast(sums[1], 0));
    await fails("Unsupported", "the backend 'over_store' does not support reduce", () => {
      return groups[0].reduce(sums[0], 0);
    });
    const work = groups[0].recvAnysource([sums[0]], { tag: 9 });
    await work;
    equal([work.sourceRank(), sums[0]], [1, Float32Array.of(9, 9)]);
    const served = groups[2].getBackend("cpu");
    equal([served.name(), served.rank(), served.size()], ["over_store", 2, 3]);
    equal(served.backendType, pr.ProcessGroup.BackendType.CUSTOM);
    const late = groups[2].barrier({ timeout: 30 });
    await fails("CollectiveTimeout", "the backend 'over_store' had not ended it", late);
    await leave(groups.slice(0, 2));
    equal(ended, [0, 1]);
    await groups[2].shutdown();
  },

  async "every array type is its dtype"(pr) {
    const groups = await join(pr, 2);
    const types = [
      Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array,
      Float64Array,
    ];
    for (const Type of types) {
      const arrays = [Type.of(1, 2, 3), Type.of(10, 20, 30)];
      await Promise.all(groups.map((group, rank) => group.allreduce(arrays[rank])));
      arrays.forEach((array) => equal(array, Type.of(11, 22, 33), Type.name));
    }
    for (const Type of [BigInt64Array, BigUint64Array]) {
      const arrays = [Type.of(1n), Type.of(2n ** 62n)];
      await Promise.all(groups.map((group, rank) => group.allreduce(arrays[rank])));
      arrays.forEach((array) => equal(array, Type.of(2n ** 62n + 1n), Type.name));
    }
    await leave(groups);
  },

  async "collectives of three ranks have the right results"(pr) {
    const groups = await join(pr, 3);
    const all = (act) => Promise.all(groups.map((group, rank) => act(group, rank)));
    const sums = groups.map((_, rank) => new Float64Array(70_000).fill(rank + 1));
    await all((group, rank) => group.allreduce(sums[rank], { op: pr.ReduceOp.MAX }));
    sums.forEach((sum) => ok(sum.every((value) => value === 3), "the maximum"));
    const spread = groups.map((_, rank) => Int32Array.of(rank, rank));
    await all((group, rank) => group.broadcast(spread[rank], 2));
    spread.forEach((array) => equal(array, Int32Array.of(2, 2)));
    const gathered = groups.map(() => [0, 1, 2].map(() => new Float32Array(2)));
    const mine = groups.map((_, rank) => Float32Array.of(rank, -rank));
    await all((group, rank) => group.allgather(gathered[rank], mine[rank]));
    gathered.forEach((list) => equal(list, mine));
    // Outputs come by rank, as in c10d: its list has an array for each input.
    const byRank = groups.map(() => [0, 1, 2].map(() => [new Float32Array(2), new Int8Array(1)]));
    await all((group, rank) => {
      return group.allgatherCoalesced(byRank[rank], [mine[rank], Int8Array.of(10 * rank)]);
    });
    const expected = mine.map((array, rank) => [array, Int8Array.of(10 * rank)]);
    byRank.forEach((list) => equal(list, expected));
    const parts = groups.map((_, rank) => [0, 1, 2].map((to) => Int32Array.of(10 * rank + to)));
    const came = groups.map(() => [0, 1, 2].map(() => new Int32Array(1)));
    await all((group, rank) => group.alltoall(came[rank], parts[rank]));
    came.forEach((list, to) => equal(list.flatMap((it) => [...it]), [to, 10 + to, 20 + to]));
    await all((group) => group.barrier());
    await leave(groups);
  },

  async "calls that wait keep their place among the operations of a group"(pr) {
    const groups = await join(pr, 2);
    const results = groups.map((_, rank) => ({
      big: new Float32Array(4 << 20).fill(rank),
      all: [null, null],
      numbers: [Float32Array.of(rank), Float32Array.of(rank + 1), Float32Array.of(rank + 2)],
    }));
    const callsOf = (group, rank) => {
      const { big, all, numbers } = results[rank];
      return [
        () => group.allreduce(big),
        () => pr.allGatherObject(all, `of ${rank}`, { group }),
        () => group.barrier(),
        () => group.allreduce(numbers[0]),
        () => group.monitoredBarrier(),
        () => group.allreduce(numbers[1]),
        () => group.splitGroup([0, 1]).then((made) => made.shutdown()),
        () => group.allreduce(numbers[2]),
      ];
    };
    // One rank calls everything at once, the other one thing after the other.
    const atOnce = Promise.all(callsOf(groups[0], 0).map((call) => call()));
    for (const call of callsOf(groups[1], 1)) await call();
    await atOnce;
    for (const { big, all, numbers } of results) {
      ok(big.every((value) => value === 1), "the large sum");
      equal(all, ["of 0", "of 1"]);
      equal(numbers.map(([number]) => number), [1, 3, 5]);
    }
    await leave(groups);
  },

  async "a monitored barrier with timeout 0 waits for nobody"(pr) {
    const groups = await join(pr, 2);
    await fails("MonitoredBarrier", "Rank 1 failed to pass monitoredBarrier in 0 ms", () => {
      return groups[0].monitoredBarrier({ timeout: 0 });
    });
    await fails("MonitoredBarrier", "Rank 1", () => groups[1].monitoredBarrier({ timeout: 0 }));
    await leave(groups);
  },

  async "messages meet by their tags"(pr) {
    const groups = await join(pr, 2);
    const [first, second] = [new Uint16Array(3), new Uint16Array(3)];
    const receives = [2, 1].map((tag) => {
      return groups[1].recv([tag === 1 ? first : second], 0, { tag });
    });
    const sends = [
      groups[0].send([Uint16Array.of(1, 1, 1)], 1, { tag: 1 }),
      groups[0].send([Uint16Array.of(2, 2, 2)], 1, { tag: 2 }),
    ];
    await Promise.all([...receives, ...sends]);
    equal([first, second], [Uint16Array.of(1, 1, 1), Uint16Array.of(2, 2, 2)]);
    equal(receives[0].sourceRank(), 0);
    await leave(groups);
  },

  async "wrong calls throw immediately and name what they take"(pr) {
    const groups = await join(pr, 1);
    await fails("InvalidType", "allreduce", () => groups[0].allreduce("text"));
    await fails("InvalidArgument", "root", () => groups[0].broadcast(new Int8Array(1), 5));
    await fails("UnsupportedDType", "BAND", () => {
      return groups[0].allreduce(new Float32Array(1), { op: pr.ReduceOp.BAND });
    });
    await leave(groups);
    await fails("InvalidGroup", "destroyed", () => groups[0].allreduce(new Float32Array(1)));
  },

  async "an unknown backend is refused by its name"(pr) {
    const join = pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { backend: "nope" });
    const error = await join.then(() => null, (reason) => reason);
    equal([error?.name, error?.backend], ["UnknownBackendError", "nope"]);
    await fails("UnknownBackend", error.message, () => pr.parseBackend("nope"));
  },

  async "what a browser cannot do says so"(pr) {
    await fails("Unsupported", "", () => pr.TCPStore.connect("127.0.0.1", 1));
    await fails("Unsupported", "", () => pr.FileStore.open("/nowhere"));
    const options = { rank: 0, worldSize: 1 };
    await fails("Unsupported", "tcp", () => pr.rendezvous("tcp://127.0.0.1:1", options));
  },

  async "an operation that nobody joins ends at its deadline"(pr) {
    const groups = await join(pr, 2);
    const work = groups[0].allreduce(new Float32Array(4), { timeout: 2000 });
    await fails("WaitTimeout", "goes on", work.wait({ timeout: 1 }));
    const error = await fails("CollectiveTimeout", "allreduce", work);
    equal(error.collective, "allreduce");
    await Promise.all(groups.map((group) => group.shutdown()));
  },

  async "a deadline is kept though timers fire early"(pr) {
    const groups = await join(pr, 2);
    const later = globalThis.setTimeout;
    // Those of Node do, by less than a millisecond.
    globalThis.setTimeout = (callback, ms) => later(callback, Math.max(0, ms - 20));
    try {
      const work = groups[0].allreduce(new Float32Array(4), { timeout: 400 });
      await fails("CollectiveTimeout", "allreduce", work);
    } finally {
      globalThis.setTimeout = later;
    }
    await Promise.all(groups.map((group) => group.shutdown()));
  },

  async "ranks that call different things all hear of it"(pr) {
    const groups = await join(pr, 3);
    const works = groups.map((group, rank) => {
      return rank === 1
        ? group.allreduce(new Float64Array(5))
        : group.allreduce(new Float32Array(5));
    });
    for (const work of works) await fails("CollectiveMismatch", "", work);
    await leave(groups);
  },

  async "a wait that is given up leaves the operation alone"(pr) {
    const groups = await join(pr, 2);
    const tensors = [Float32Array.of(1), Float32Array.of(2)];
    const giveUp = new AbortController();
    const work = groups[0].allreduce(tensors[0], { signal: giveUp.signal });
    giveUp.abort(new Error("enough"));
    let reason;
    await work.then(() => {}, (error) => (reason = error.message));
    equal(reason, "enough");
    await groups[1].allreduce(tensors[1]);
    equal(tensors, [Float32Array.of(1), Float32Array.of(3)]);
    const store = new pr.HashStore();
    const waiting = store.get("never", { signal: AbortSignal.abort(new Error("now")) });
    await waiting.catch((error) => (reason = error.message));
    equal(reason, "now");
    await leave(groups);
  },

  async "objects travel"(pr) {
    const groups = await join(pr, 2);
    const object = { text: "ä", list: [1, 2.5, null], bytes: new Uint8Array([1]) };
    const lists = groups.map(() => [null, null]);
    await Promise.all(groups.map((group, rank) => {
      return pr.allGatherObject(lists[rank], { ...object, rank }, { group });
    }));
    for (const list of lists) equal(list, [0, 1].map((rank) => ({ ...object, rank })));
    await leave(groups);
  },

  async "arrays that are objects keep their elements and shapes"(pr) {
    const groups = await join(pr, 2);
    const numbers = Int16Array.of(0, 1, 2, 3, 4, 5);
    const columns = pr.tensor(numbers, { shape: [2, 3], strides: [1, 2] });
    const pairs = pr.tensor(Float32Array.of(1, 2), { dtype: "complex64" });
    const lists = groups.map(() => [null, null]);
    await Promise.all(groups.map((group, rank) => {
      return pr.allGatherObject(lists[rank], [columns, pairs, numbers], { group });
    }));
    for (const [[matrix, complex, flat]] of lists) {
      equal([matrix.dtype, matrix.shape], ["i16", [2, 3]]);
      equal(matrix.data, Int16Array.of(0, 2, 4, 1, 3, 5));
      equal([complex.dtype, complex.shape], ["complex64", [1]]);
      equal(complex.data, Float32Array.of(1, 2));
      equal(flat, numbers);
    }
    await leave(groups);
  },

  async "starts of what is prepared follow one another"(pr) {
    for (const size of [2, 3, 5]) {
      const groups = await join(pr, size);
      const arrays = groups.map(() => Float64Array.of(1));
      const prepared = groups.map((group, rank) => group.prepareAllreduce(arrays[rank]));
      await Promise.all(prepared.flatMap((sum) => [sum.run(), sum.start(), sum.run()]));
      for (const array of arrays) equal(array, Float64Array.of(size ** 3));
      await leave(groups);
    }
  },

  async "what a group refuses harms nothing else"(pr) {
    const [group] = await join(pr, 1);
    const window = await group.newWindow();
    await fails("InvalidArgument", "no tensor", () => window.tensorDeregister());
    await window.tensorRegister(pr.alloc("f32", [1]));
    await fails("InvalidArgument", "already", () => window.tensorRegister(pr.alloc("f32", [1])));
    equal(await group.allreduce(Float32Array.of(3)), Float32Array.of(3));
    await window.tensorDeregister();
    await leave([group]);
  },
};
