// What each rank does in the tests of groups, objects and messages. The default group is made from
// the environment that a launcher gives.

import { readFileSync, readdirSync } from "node:fs";

import * as pr from "polyrank";

import { makeInAnyOrder } from "../../../bindings-wasm/tests/cases/new_groups.mjs";

/** Runs as a program of `polyrank run`; rank 0 prints what all ranks found. */
export async function launched() {
  const group = await pr.initProcessGroup({ timeout: 60_000 });
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const found = { rank, size };

  const x = Float32Array.of(rank + 1);
  await pr.allReduce(x, { op: pr.ReduceOp.MAX });
  found.max = x[0];

  const odd = await pr.newGroup([1]);
  found.outside = odd === pr.NON_GROUP_MEMBER;
  found.rankInOdd = pr.getRank(odd);
  const nothing = await pr.allReduce(Float32Array.of(1), { group: odd });
  found.oddSum = nothing[0];

  const reversed = await group.splitGroup([...Array(size).keys()].reverse());
  found.reversedRank = reversed.rank();
  found.ranks = reversed.ranks();
  const y = Int32Array.of(rank);
  await reversed.broadcast(y, 0);
  found.fromReversedRoot = y[0];
  await reversed.shutdown();

  const all = new Array(size).fill(null);
  await pr.allGatherObject(all, { rank, list: [1, "x", null], bytes: Uint8Array.of(rank) });
  found.objects = all.map((object) => [object.rank, object.list.length, [...object.bytes]]);
  const nothings = new Array(size).fill("nothing came");
  await pr.allGatherObject(nothings, rank < 2 ? null : rank);
  found.nothings = nothings;
  const root = rank === 0 ? new Array(size).fill("nothing came") : null;
  await pr.gatherObject(null, root, { dst: 0 });
  if (rank === 0) found.nothings.push(...root);
  const told = rank === 0 ? ["hello", { deep: true }] : [null, null];
  await pr.broadcastObjectList(told, { src: 0 });
  found.told = told;
  const scattered = [null];
  const parts = rank === 0 ? Array.from({ length: size }, (_, to) => `for ${to}`) : null;
  await pr.scatterObjectList(scattered, parts, { src: 0 });
  found.scattered = scattered[0];

  if (rank === 0) await pr.send(Float64Array.of(2.5), { dst: 1, tag: 9 });
  if (rank === 1) {
    const received = new Float64Array(1);
    const work = pr.recv(received, { tag: 9 });
    found.received = (await work)[0];
    found.sender = work.sourceRank();
  }
  await pr.monitoredBarrier({ timeout: 20_000 });
  // Rank 0 alone comes to this one, and waits for nobody.
  found.late = await late(group, rank);
  found.count = pr.getPgCount();
  const everything = new Array(size).fill(null);
  await pr.allGatherObject(everything, found);
  await pr.destroyProcessGroup();
  found.after = pr.isInitialized();
  if (rank === 0) console.log(JSON.stringify(everything));
  if (found.after) throw new Error("still initialized");
}

/** What a monitored barrier with a timeout of 0 says of rank 1 where it comes later, or not. */
async function late(group, rank) {
  const store = group.getGroupStore();
  if (rank > 0) await store.get("rank 0 waits for nobody");
  const ended = await group.monitoredBarrier({ timeout: 0 }).catch((error) => error.message);
  if (rank === 0) await store.set("rank 0 waits for nobody", "");
  return ended;
}

/** A group that no free function knows is left at the end of a block, and once more. */
export async function block({ group }) {
  const dispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
  await group[dispose]();
  let kind = "nothing";
  try {
    await group.allreduce(Int32Array.of(1));
  } catch (error) {
    ({ kind } = error);
  }
  await group[dispose]();
  await group.shutdown();
  return kind;
}

/** Signals end waits: of stores, of joining, of operations. */
export async function signals({ group, store, rank }) {
  const ended = async (begin) => {
    const end = new AbortController();
    const promise = begin(end.signal);
    await new Promise(setImmediate);
    end.abort(new Error("enough"));
    try {
      await promise;
    } catch (error) {
      return error.message;
    }
    return "ended well";
  };
  const got = {};
  if (rank === 0) {
    got.get = await ended((signal) => store.get("never", { signal }));
    // The connection is free again immediately: nobody else waits for what was given up.
    await store.set("after", "1");
    got.after = new TextDecoder().decode(await store.get("after"));
    const other = new pr.PrefixStore("alone", store);
    got.join = await ended((signal) => {
      return pr.ProcessGroup.join(other, 0, 2, { signal, groupName: "alone" });
    });
    const x = Float32Array.of(1);
    got.work = await ended((signal) => group.allreduce(x, { signal }));
    got.array = [...x];
    await store.set("come", "1");
  } else {
    await store.get("come");
    const x = Float32Array.of(2);
    await group.allreduce(x);
    got.array = [...x];
  }
  await group.barrier();
  try {
    await store.get("k", { signal: AbortSignal.abort(new Error("before")) });
  } catch (error) {
    got.before = error.message;
  }
  return got;
}

/** Messages from rank 0 to rank 1, none of them awaited, in a group where they are 1 and 0. */
export async function messages({ group, rank }) {
  const reversed = await group.splitGroup([1, 0]);
  const lengths = [300_000, 1, 300_000, 1];
  if (rank === 0) {
    const names = [{ dst: 1 }, { groupDst: 0 }, { dst: 1 }, { groupDst: 0 }];
    await Promise.all(names.map((name, place) => {
      const object = { place, bytes: new Uint8Array(lengths[place]) };
      return pr.sendObjectList([object], { ...name, group: reversed });
    }));
    return null;
  }
  const names = [{ src: 0 }, {}, { groupSrc: 1 }, { src: 0 }];
  const lists = names.map(() => [null]);
  await Promise.all(names.map((name, place) => {
    return pr.recvObjectList(lists[place], { ...name, group: reversed });
  }));
  return lists.map(([{ place, bytes }]) => [place, bytes.length]);
}

/** Rank 0 leaves with a call under way that it gave up; rank 1 never takes part in time. */
export async function leave({ rank, store }) {
  const group = await pr.ProcessGroup.join(new pr.PrefixStore("leave", store), rank, 2);
  if (rank === 0) {
    const end = new AbortController();
    const gathered = pr.allGatherObject([null, null], 1, { group, signal: end.signal });
    end.abort(new Error("enough"));
    const given = await gathered.catch((error) => error.message);
    await group.shutdown();
    await store.set("left", "1");
    return { given, shutdown: "over" };
  }
  await store.get("left");
  const gathered = pr.allGatherObject([null, null], 1, { group });
  return { kind: await gathered.then(() => null, (error) => error.kind) };
}

/** A group that is aborted fails everywhere. */
export async function abort({ group, rank }) {
  await group.barrier();
  const work = group.allreduce(Float32Array.of(1));
  if (rank === 0) await work;
  const next = rank === 0 ? null : group.allreduce(Float32Array.of(1));
  if (rank === 0) group.abort();
  try {
    await (next ?? group.allreduce(Float32Array.of(1)));
  } catch (error) {
    const { kind, name, rank: by, collective, seq } = error;
    return { kind, name, rank: by, collective, seq, staysOpen: true };
  }
  return { staysOpen: true };
}

/** What ranks hear that make two groups in different orders, after many that all of them made. */
export async function crossing({ store, rank }) {
  await pr.initProcessGroup({ store, rank, worldSize: 2, timeout: 60_000, groupName: "crossing" });
  for (let made = 0; made < 15; made += 1) await pr.newGroup();
  const own = rank === 0 ? "one" : "other";
  const error = await pr.newGroup([0, 1], { pgOptions: { groupName: own } }).catch((it) => it);
  await pr.destroyProcessGroup();
  return [error.kind, error.message];
}

/** Groups that ranks make at the same time, each rank in an order of its own. */
export async function anyOrder({ store, rank, size, argument }) {
  const options = { store, rank, worldSize: size, timeout: 60_000, groupName: "any order" };
  const count = await makeInAnyOrder(pr, await pr.initProcessGroup(options), argument);
  // Groups over a store have nothing to do with the default group.
  const names = rank === 0 ? ["one", "other"] : ["other", "one"];
  const joined = await Promise.all(names.map((groupName) => {
    return pr.ProcessGroup.join(store, rank, size, { groupName, timeout: 60_000 });
  }));
  await Promise.all(joined.map((it) => it.shutdown()));
  await pr.destroyProcessGroup();
  return count;
}

/** What becomes of two groups of one name that are made at the same time. */
export async function oneName({ group, rank, size }) {
  const all = [...Array(size).keys()];
  const options = { groupName: "one name" };
  const calls = [group.splitGroup(all, options), group.splitGroup(all, options)];
  const settled = Promise.allSettled(calls);
  // The parent is free meanwhile.
  const sum = Int32Array.of(1);
  await group.allreduce(sum);
  const [made, refused] = await settled;
  const ranks = Int32Array.of(rank);
  await made.value.allreduce(ranks);
  return [sum[0], ranks[0], refused.reason.kind];
}

/** A group is left while one is made out of it that nobody else makes. */
export async function leftWhileMaking({ group, rank }) {
  if (rank === 1) return 0;
  const made = group.splitGroup([0, 1], { groupName: "never" }).catch((error) => error.kind);
  await group.shutdown();
  return made;
}

/** A hundred groups in one process: what it has open and shares at most, and is left with. */
export async function manyGroups({ group, rank, size, argument: { maxBytes } }) {
  const open = () => readdirSync("/proc/self/fd").length;
  const sharedBytes = () => {
    const [, kilobytes] = /^RssShmem:\s*(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"));
    return 1024 * Number(kilobytes);
  };
  const elements = [1, 1001, 300_001];
  const use = async (it) => {
    for (const count of elements) {
      const sum = new Int32Array(count).fill(it.rank());
      await it.allreduce(sum);
      const expected = (it.size() * (it.size() - 1)) / 2;
      if (!sum.every((value) => value === expected)) throw new Error(`not ${expected}`);
    }
  };
  await use(group);
  const [before, bytesBefore] = [open(), sharedBytes()];
  const all = [...Array(size).keys()];
  const groups = [];
  let most = 0;
  for (let number = 0; number < 100; number += 1) {
    // Every fourth is one that a rank is not in.
    const members = number % 4 === 3 ? all.filter((it) => it !== (number >> 2) % size) : all;
    const made = await group.splitGroup(members, { groupName: `many ${number}` });
    if ((made !== null) !== members.includes(rank)) throw new Error(`${made}, of ${members}`);
    if (made !== null) groups.push(made);
    most = Math.max(most, open());
  }
  for (const made of groups) await use(made);
  most = Math.max(most, open());
  await group.barrier();
  const until = async (holds) => {
    const begin = Date.now();
    while (!holds() && Date.now() - begin < 60_000) await new Promise(setImmediate);
  };
  await until(() => sharedBytes() <= bytesBefore + maxBytes);
  const bytes = sharedBytes() - bytesBefore;
  for (const made of groups) await made.shutdown();
  await until(() => open() <= before + 2);
  const after = open();
  await group.barrier();
  return { most, bytes, before, after, groups: groups.length };
}
