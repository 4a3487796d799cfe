// What each rank does in the tests of the event loop: it counts turns while something takes long.

import { performance } from "node:perf_hooks";

/** Turns of the event loop until `promise` is settled. Node counts them: a program that did would
 * keep a core busy that the ranks need. */
async function turnsDuring(promise) {
  const turns = () => performance.nodeTiming.uvMetricsInfo.loopCount;
  const before = turns();
  await promise;
  return { count: turns() - before };
}

/** Turns while a large array is reduced. */
export async function large({ group, argument }) {
  const array = new Float32Array(argument.bytes / 4).fill(1);
  const turns = await turnsDuring(group.allreduce(array));
  return { ...turns, right: array.every((value) => value === 2) };
}

/** Turns while a store waits for a key, more often than libuv has threads. */
export async function storeWait({ store, rank }) {
  const keys = Array.from({ length: 12 }, (_, at) => `key ${at}`);
  if (rank === 1) {
    await store.get("begun");
    for (const key of keys) await store.set(key, key);
    return null;
  }
  const clones = await Promise.all(keys.map(() => store.clone()));
  const values = Promise.all(clones.map((clone, at) => clone.get(keys[at])));
  const counted = turnsDuring(values);
  for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  await store.set("begun", "1");
  const turns = await counted;
  return { ...turns, values: (await values).map((value) => new TextDecoder().decode(value)) };
}

/** Small operations that come behind a large one are issued behind it. */
export async function order({ group, rank }) {
  const [big, small] = [new Float32Array(8 << 20).fill(rank), Float32Array.of(rank)];
  const ended = [];
  const works = [
    group.allreduce(big).then(() => ended.push("big")),
    group.allreduce(small).then(() => ended.push("small")),
    group.barrier().then(() => ended.push("barrier")),
  ];
  await Promise.all(works);
  return { ended, small: [...small], big: big.every((value) => value === 1) };
}
