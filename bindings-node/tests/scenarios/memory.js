// What each rank does in the tests of memory that goes away while an operation is in flight. Rank 0
// takes it away; rank 1 comes to each operation only after that.

import { Worker } from "node:worker_threads";

const ROUNDS = 50;
const ELEMENTS = 64 * 1024;

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return { kind: error.kind, message: error.message };
  }
  return null;
}

/** Fills the holes that freed memory left, so that a write into them would be noticed. */
function collect() {
  globalThis.gc();
  const filler = Array.from({ length: 8 }, () => new Float32Array(ELEMENTS).fill(-1));
  globalThis.gc();
  return filler;
}

/** Rank 0 begins, `takeAway`s and lets rank 1 come; what its operations ended with. */
async function rounds({ group, store, rank, argument }, make, takeAway) {
  const ended = [];
  for (let round = 0; round < (argument?.rounds ?? ROUNDS); round += 1) {
    const key = `round ${round}`;
    if (rank === 1) {
      await store.get(key);
      await group.allreduce(new Float32Array(ELEMENTS).fill(1));
      continue;
    }
    const array = make();
    const work = group.allreduce(array);
    // A call leaves its copy to the next turn of the event loop where others have used up what may
    // be copied in this one. What is lost before it was copied is another test's.
    await new Promise((resolve) => setImmediate(resolve));
    const kept = takeAway(array);
    const filler = collect();
    await store.set(key, "1");
    ended.push(await failure(work));
    if (!filler.every((one) => one.every((value) => value === -1))) throw new Error("overwritten");
    kept?.(array);
  }
  // The group is as good as before.
  const last = Float32Array.of(rank + 1);
  await group.allreduce(last);
  return { ended, last: [...last] };
}

/** The array's memory is transferred away, and collected. */
export function transfer(given) {
  const make = () => new Float32Array(ELEMENTS).fill(2);
  return rounds(given, make, (array) => {
    structuredClone(array.buffer, { transfer: [array.buffer] });
  });
}

/** The array's memory shrinks. */
export function shrink(given) {
  const bytes = ELEMENTS * 4;
  const make = () => new Float32Array(new ArrayBuffer(bytes, { maxByteLength: bytes })).fill(2);
  return rounds(given, make, (array) => array.buffer.resize(0));
}

/** The array's memory shrinks and grows again: it is as long as it was, and gets the result. */
export function shrinkAndGrow(given) {
  const bytes = ELEMENTS * 4;
  const make = () => new Float32Array(new ArrayBuffer(bytes, { maxByteLength: bytes })).fill(2);
  return rounds(given, make, (array) => {
    array.buffer.resize(0);
    array.buffer.resize(bytes);
    return () => {
      if (!array.every((value) => value === 3)) throw new Error("not the result");
    };
  });
}

/** An array that rank 0 loses after the call, before it was copied: others are copied first, or it
 * is so large that this takes some turns of the event loop. */
export async function lostBeforeCopy({ group, store, rank, argument }) {
  const lose = {
    transfer: (array) => structuredClone(array.buffer, { transfer: [array.buffer] }),
    resize: (array) => array.buffer.resize(0),
    resizeOther: (array) => array.buffer.resize(array.byteLength + 4),
  }[argument.how];
  // Longer than what is worked on in the array itself, while the call lasts.
  const copied = 136 << 20;
  const bytes = argument.isLarge ? copied : 1024;
  const first = new Float32Array(argument.isLarge ? 1 : copied / 4).fill(1);
  const resizable = { maxByteLength: bytes + 4 };
  const memory = new ArrayBuffer(bytes, argument.how === "transfer" ? {} : resizable);
  const array = new Float32Array(memory).fill(2);
  // As many elements: the next operation could take the place of the lost one.
  const next = new Float32Array(bytes / 4).fill(100);
  const works = [group.allreduce(first), group.allreduce(array)];
  if (rank === 0) lose(array);
  works.push(group.allreduce(next));
  const ended = await Promise.all(works.map(failure));
  const last = await failure(group.barrier());
  // The rank that gave up stays until the other has heard why.
  if (rank === 0) await store.get("heard");
  else await store.set("heard", "1");
  return { ended: [...ended, last], next: next[0], staysOpen: true };
}

/** Operations that are not awaited, on one array. */
export async function oneArray({ pr, group }) {
  const results = [];
  for (const elements of [1, ELEMENTS, 3 << 20]) {
    for (const tensor of [new Float32Array(elements), pr.alloc("f32", elements)]) {
      (tensor.data ?? tensor).fill(1);
      const works = Array.from({ length: 4 }, () => group.allreduce(tensor));
      await Promise.all(works);
      results.push((tensor.data ?? tensor).every((value) => value === 16));
    }
  }
  return results;
}

/** Operations that are not awaited, on a tensor of polyrank and on arrays over its memory. */
export async function oneMemory({ pr, group }) {
  const results = [];
  for (const elements of [2, ELEMENTS, 1 << 20]) {
    const half = elements / 2;
    const alike = [
      (tensor) => tensor,
      (tensor) => tensor.data,
      (tensor) => pr.tensor(tensor.data, { shape: [2, half] }),
    ];
    for (const [one, other] of alike.flatMap((one) => alike.map((other) => [one, other]))) {
      const tensor = pr.alloc("f32", elements);
      tensor.data.fill(1);
      const given = [one(tensor), tensor.data.subarray(half), other(tensor)];
      await Promise.all(given.map((it) => group.allreduce(it)));
      results.push(tensor.data.every((value, at) => value === (at < half ? 4 : 8)));
    }
  }
  return results;
}

/** Rank 0 has no memory for a copy of what it gives: one element, too many times. */
export async function noMemory({ pr, group, store, rank }) {
  const data = pr.tensor(Float32Array.of(1), { shape: [2 ** 50], strides: [0] });
  let thrown = null;
  const works = [];
  const next = new Float32Array(4);
  try {
    works.push(rank === 0 ? group.send([data], 1) : group.recv([new Float32Array(4)], 0));
  } catch ({ kind, message }) {
    thrown = { kind, message };
  }
  works.push(group.allreduce(next));
  const ended = await Promise.all(works.map(failure));
  if (rank === 0) await store.get("heard");
  else await store.set("heard", "1");
  return { thrown, ended, next, staysOpen: true };
}

/** Rank 0's operation loses an array behind its preparation, before it is copied. */
export async function lostInPreparation({ group, store, rank }) {
  const inputs = [new Float32Array(ELEMENTS).fill(1), new Float32Array(ELEMENTS).fill(1)];
  const output = new Float32Array(ELEMENTS);
  let thrown = null;
  const works = [];
  if (rank === 0) {
    const { native } = await import("../../js/runtime/native.js");
    const prepare = native.prepare;
    native.prepare = (...given) => {
      const [, , , , tensors, infos] = given;
      // What is looked at behind the first input takes that away.
      const takeAway = () => {
        structuredClone(tensors[1].buffer, { transfer: [tensors[1].buffer] });
        return false;
      };
      const info = { dtype: infos[2], get readOnly() { return takeAway(); } };
      given[5] = [infos[0], infos[1], info];
      return prepare(...given);
    };
    try {
      works.push(group.reduceScatter(output, inputs));
    } catch (error) {
      thrown = { kind: error.kind, message: error.message };
    }
    native.prepare = prepare;
    // Of the same form as the one that failed, which it must not be taken for.
    inputs[0] = new Float32Array(ELEMENTS).fill(100);
  }
  works.push(group.reduceScatter(output, inputs));
  const ended = await Promise.all(works.map(failure));
  // The rank that gave up stays until the other has heard why.
  if (rank === 0) await store.get("heard");
  else await store.set("heard", "1");
  return { thrown, ended, staysOpen: true };
}

/** Rank 1 is killed in the middle of operations on arrays of rank 0 that lie between others'. */
export async function killed({ group, rank, argument: { elements } }) {
  const around = 8;
  const whole = new Float32Array(elements + 2 * around).fill(-1);
  const array = whole.subarray(around, around + elements);
  for (let round = 0; ; round += 1) {
    array.fill(1);
    const work = group.allreduce(array);
    if (rank === 1 && round === 20) process.kill(process.pid, "SIGKILL");
    try {
      await work;
    } catch ({ kind }) {
      // What is lent or copied has been given back: this is the program's alone.
      array.fill(5);
      for (let turn = 0; turn < 100; turn += 1) await new Promise(setImmediate);
      const outside = [...whole.subarray(0, around), ...whole.subarray(around + elements)];
      const isOurs = array.every((value) => value === 5);
      return { kind, isOurs, outside: new Set(outside), staysOpen: true };
    }
    if (!array.every((value) => value === 2)) return { kind: "a wrong result", staysOpen: true };
  }
}

/** A Worker writes to shared memory while it is reduced: the rest of it is as ever. */
export async function sharedMeanwhile({ group, argument: { elements } }) {
  const array = new Int32Array(new SharedArrayBuffer(4 * elements)).fill(1);
  const code = `
    const { parentPort, workerData: array } = require("node:worker_threads");
    parentPort.postMessage("begun");
    while (Atomics.load(array, 1) === 0) Atomics.store(array, 0, 1);
  `;
  const flags = array.subarray(0, 2);
  flags[1] = 0;
  const worker = new Worker(code, { eval: true, workerData: flags });
  await new Promise((resolve) => worker.once("message", resolve));
  const rest = array.subarray(2);
  for (let round = 0; round < 20; round += 1) {
    rest.fill(1);
    // The first two are written by the Worker as well: any of the values may win.
    await group.allreduce(array.subarray(0, 1));
    await group.allreduce(rest);
    if (!rest.every((value) => value === 2)) return false;
  }
  Atomics.store(array, 1, 1);
  await new Promise((resolve) => worker.once("exit", resolve));
  return true;
}

/** Owned memory whose tensor and views are collected while an operation uses it. */
export function forget({ pr, ...given }) {
  const make = () => {
    const tensor = pr.alloc("f32", [ELEMENTS]);
    tensor.data.fill(2);
    return tensor;
  };
  return rounds(given, make, () => null);
}

/** Owned memory cannot be given away: what is transferred is a copy, or nothing. */
export async function ownedStays({ pr }) {
  const tensor = pr.alloc("f32", [4]);
  try {
    structuredClone(tensor.data.buffer, { transfer: [tensor.data.buffer] });
  } catch (error) {
    if (error.name !== "DataCloneError") throw error;
  }
  tensor.data[3] = 5;
  return [...tensor.data];
}

/** Workers of rank 0 are terminated in the middle of operations that rank 1 never comes to. */
export async function terminate({ rank, store, argument }) {
  if (rank === 1) {
    await store.get("over");
    return { staysOpen: true };
  }
  const kinds = [];
  for (let round = 0; round < argument.rounds; round += 1) {
    kinds.push(await terminateOne(store.port, round, argument.kind));
    collect();
  }
  await store.set("over", "1");
  return { kinds, staysOpen: true };
}

/** Two Workers in one group of their own: one is terminated, the other learns of it. */
async function terminateOne(port, round, kind) {
  const begin = (rank) => {
    const workerData = { port, round, rank, kind };
    return new Worker(new URL("./memory-worker.js", import.meta.url), { workerData });
  };
  const [doomed, other] = [begin(0), begin(1)];
  const told = (worker, word) => {
    return new Promise((resolve, reject) => {
      worker.on("error", reject);
      worker.on("message", (message) => {
        if (message[0] === word) resolve(message[1]);
      });
    });
  };
  const learned = told(other, "ended");
  await told(doomed, "begun");
  await doomed.terminate();
  const kindOfError = await learned;
  await other.terminate();
  return kindOfError;
}
