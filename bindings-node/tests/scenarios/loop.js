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

/** Operations of all sorts: rank 0 calls them all at once, rank 1 one after the other. */
export async function mixedOrder({ pr, group, rank }) {
  const big = new Float32Array(8 << 20).fill(rank);
  const numbers = Array.from({ length: 4 }, (_, at) => Float32Array.of(at + rank));
  const max = { op: pr.ReduceOp.MAX };
  const [all, list, mine] = [[null, null], [rank], [null]];
  const groups = [];
  const calls = [
    () => group.allreduce(big),
    () => pr.allGatherObject(all, `of ${rank}`, { group }),
    () => group.barrier(),
    () => group.allreduce(numbers[0], max),
    () => pr.broadcastObjectList(list, { src: 1, group }),
    () => group.splitGroup([rank]).then((made) => groups.push(made)),
    () => group.allreduce(numbers[1], max),
    () => group.splitGroup([0, 1]).then((made) => groups.push(made)),
    () => group.monitoredBarrier(),
    () => group.allreduce(numbers[2], max),
    () => pr.scatterObjectList(mine, rank === 0 ? ["me", "you"] : null, { src: 0, group }),
    () => group.allreduce(numbers[3], max),
  ];
  if (rank === 0) {
    await Promise.all(calls.map((call) => call()));
  } else {
    for (const call of calls) await call();
  }
  const sizes = groups.map((made) => made.size());
  await Promise.all(groups.map((made) => made.shutdown()));
  const objects = [...all, `from ${list[0]}`, mine[0] === (rank === 0 ? "me" : "you") && "for you"];
  return {
    objects,
    sizes,
    numbers: numbers.map(([number]) => number),
    big: big.every((value) => value === 1),
  };
}

/** Rank 1 sends objects of all sizes, and rank 0 receives them, without awaiting any. */
export async function objectsInOrder({ pr, group, rank }) {
  const texts = Array.from({ length: 8 }, (_, at) => "x".repeat(at * 1000));
  if (rank === 1) {
    await Promise.all(texts.map((text) => pr.sendObjectList([text], { dst: 0, group })));
    return null;
  }
  const lists = texts.map(() => [null]);
  await Promise.all(lists.map((list) => pr.recvObjectList(list, { src: 1, group })));
  return lists.map(([text]) => text);
}
