// A native half for tests of the layer: it copies, queues and completes as the real ones do, but
// every operation ends when the test says so, and every call is written down.

import { install } from "../../js/runtime/native.js";

/** Milliseconds that every operation says is its limit. */
const LIMIT_MS = 1000;

/** The stand-in and the API over it. */
export async function standIn(options = {}) {
  const native = new StandIn(options);
  const turns = { count: 0 };
  const groups = [];
  install(native, {
    get maxMemoryBytes() {
      return native.maxMemoryBytes ?? Number.MAX_SAFE_INTEGER;
    },
    get maxArrayBytes() {
      return this.maxMemoryBytes;
    },
    nextTurn: (callback) =>
      setImmediate(() => {
        turns.count += 1;
        native.copiedInTurn.push(0);
        callback();
      }),
    warn: (text) => native.warnings.push(text),
    currentGroup: {
      run: (group, callback) => {
        groups.push(group);
        try {
          return callback();
        } finally {
          groups.pop();
        }
      },
      get: () => groups.at(-1),
    },
    currentMesh: { run: (_, callback) => callback(), get: () => undefined },
  });
  const pr = await import("../../js/generated/index.js");
  return { pr, native, turns };
}

/** An error as the native half throws them. */
export function nativeError(kind, message, fields = {}) {
  return Object.assign(new Error(message), { data: { kind, message, fields } });
}

class StandIn {
  platform = "node";
  /** What `invoke` and `invokeAsync` answer, by key. */
  answers = new Map();
  calls = [];
  works = [];
  issuedInOrder = [];
  warnings = [];
  cancelled = [];
  /** Numbers of groups. */
  aborted = [];
  copiedInTurn = [0];
  /** Whether operations read, and write, their tensors. */
  reads = true;
  writes = true;
  #completed = () => {};
  #cancellations = 0;

  constructor({ completesAtOnce = true } = {}) {
    this.completesAtOnce = completesAtOnce;
  }

  shutdownLimitMs() {
    return 5000;
  }

  version() {
    return "9.9.9";
  }

  /** No call is short here. */
  shortMethod() {
    return -1;
  }

  /** Members never change here. */
  checkMembers() {
    return 0;
  }

  alloc(bytes) {
    const memory = new Uint8Array(bytes);
    return { view: () => memory };
  }

  prepare(group, method, args, keywords, tensors, infos, maxEagerBytes) {
    const refusal = this.answers.get(method);
    if (refusal instanceof Error) throw refusal;
    const key = group ?? keywords?.group?.handle ?? null;
    const work = new StandInWork(this, key?.id ?? 0, method, tensors);
    this.calls.push({ key: method, args, keywords, infos, maxEagerBytes });
    this.works.push(work);
    if (work.bytesIn <= maxEagerBytes) {
      work.copyIn(tensors, work.bytesIn);
      work.issue();
    }
    return work;
  }

  invoke(self, key, args, keywords) {
    this.calls.push({ self, key, args, keywords });
    const answer = this.answers.get(key);
    if (answer instanceof Error) throw answer;
    return typeof answer === "function" ? answer({ self, args, keywords }) : (answer ?? null);
  }

  invokeAsync(self, key, args, keywords, cancel) {
    this.calls.push({ self, key, args, keywords, cancel });
    const answer = this.answers.get(key);
    if (answer instanceof Error) throw answer;
    const value = typeof answer === "function" ? answer({ self, args, keywords }) : answer;
    return Promise.resolve(value ?? null);
  }

  resolve(self, key, args, keywords) {
    const group = self ?? keywords?.group?.handle ?? this.answers.get("DISTRIBUTED_DEFAULT_GROUP");
    const begin = (cancel) => this.invokeAsync(self, key, args, keywords, cancel);
    // As if the first rank of each group were rank 10 of all.
    const { dst, src, group_dst: to = null, group_src: from = null } = keywords ?? {};
    const global = args[1] ?? dst ?? src ?? null;
    const peer = () => (global === null ? (to ?? from) : global - 10);
    const groups = group?.id === undefined ? [] : [group.id];
    const abortGroups = () => this.aborted.push(...groups);
    const isConcurrent = /_(SPLIT|NEW)_GROUP$/.test(key);
    return { groups, isConcurrent, peer, begin, abortGroups };
  }

  cancellation() {
    this.#cancellations += 1;
    return this.#cancellations;
  }

  cancel(id) {
    this.cancelled.push(id);
  }

  onCompleted(callback) {
    this.#completed = callback;
  }

  /** Ends an operation: `change` writes its staged tensors, or it fails with `failure`. */
  end(work, { change = () => {}, failure = null } = {}) {
    work.complete(change, failure);
    setImmediate(() => this.#completed([work.id]));
  }
}

let works = 0;

class StandInWork {
  name = "allreduce";
  sequence = -1;
  groupName = "a group";
  timeoutMs = LIMIT_MS;
  issued = false;
  isWatched = false;
  hasEnded = false;
  /** Why it is never issued, once that is known. */
  givenUp = null;
  #done = false;
  #failure = null;
  #copiedIn = 0;
  #copiedOut = 0;

  constructor(native, group, method, tensors) {
    this.native = native;
    this.id = works++;
    this.group = group;
    this.method = method;
    this.staged = tensors.map((tensor) => new Uint8Array(tensor.byteLength));
    this.bytes = this.staged.reduce((all, { byteLength }) => all + byteLength, 0);
    this.bytesIn = native.reads ? this.bytes : 0;
    this.outputs = native.writes ? tensors.map((_, index) => index) : [];
  }

  get bytesCopiedIn() {
    return this.#copiedIn;
  }

  copyIn(tensors, budget) {
    this.#check(tensors);
    const to = Math.min(this.bytesIn, this.#copiedIn + budget);
    this.#each(this.#copiedIn, to, (index, from, end) => {
      this.staged[index].set(tensors[index].subarray(from, end), from);
    });
    this.#count(to - this.#copiedIn);
    this.#copiedIn = to;
    return this.bytesIn - to;
  }

  issue() {
    if (this.#copiedIn < this.bytesIn) throw new Error("issued before it was copied");
    this.issued = true;
    this.sequence = this.native.issuedInOrder.push(this) - 1;
    if (this.native.completesAtOnce) this.#done = true;
  }

  giveUp(why) {
    this.givenUp = why;
  }

  isDone() {
    this.#check([]);
    return this.#done;
  }

  watch() {
    this.isWatched = true;
  }

  error() {
    this.#check([]);
    return this.#failure;
  }

  copyOut(tensors, budget) {
    this.#check(tensors);
    const to = Math.min(this.bytes, this.#copiedOut + budget);
    this.#each(this.#copiedOut, to, (index, from, end) => {
      tensors[index].set(this.staged[index].subarray(from, end), from);
    });
    this.#count(to - this.#copiedOut);
    this.#copiedOut = to;
    return this.bytes - to;
  }

  sourceRank() {
    return this.method.includes("RECV") ? 3 : null;
  }

  prepared() {
    return null;
  }

  complete(change, failure) {
    this.staged.forEach(change);
    this.#failure = failure;
    this.#done = true;
  }

  /** Nothing but this may be asked any more. */
  end() {
    if (this.hasEnded) throw new Error("ended twice");
    this.hasEnded = true;
    const { id, name, group, groupName, sequence, timeoutMs, outputs } = this;
    const source = this.sourceRank();
    return {
      id, name, group, groupName, sequence, timeoutMs, outputs, issued: true,
      sourceRank: () => source,
    };
  }

  #check(tensors) {
    if (this.hasEnded) throw new Error("asked after its end");
    tensors.forEach(({ byteLength }, index) => {
      if (byteLength !== this.staged[index].byteLength) {
        throw nativeError("InvalidArgument", "the memory of a tensor was detached or shortened");
      }
    });
  }

  /** Calls `copy` with the parts of each tensor between two bytes of all of them together. */
  #each(from, to, copy) {
    let start = 0;
    this.staged.forEach(({ byteLength }, index) => {
      const [first, end] = [Math.max(from - start, 0), Math.min(to - start, byteLength)];
      if (first < end) copy(index, first, end);
      start += byteLength;
    });
  }

  #count(bytes) {
    this.native.copiedInTurn[this.native.copiedInTurn.length - 1] += bytes;
  }
}
