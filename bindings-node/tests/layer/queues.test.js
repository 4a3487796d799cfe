// In which order calls of one group begin: operations, and calls that wait for other ranks. The
// native half is a stand-in whose calls end when the test says so.

import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import test from "node:test";

import { encode } from "../../js/runtime/codec.js";
import { nativeError, standIn } from "./standin.js";

const MIB = 1024 * 1024;
const { pr, native } = await standIn();

native.answers.set("PROCESS_GROUP_NEW", ({ args }) => ({ type: "ProcessGroup", id: args[1] }));
native.answers.set("HASH_STORE_NEW", { type: "HashStore" });

/** Group `id` of a store that nobody looks at. */
const group = (id) => pr.ProcessGroup.join(new pr.HashStore(), id, 100);

/** Has calls of `key` end one by one, when `end` is called; `begun` counts them. */
function byHand(key, value) {
  const ends = [];
  const calls = { begun: 0, end: () => ends.shift()() };
  native.answers.set(key, () => {
    calls.begun += 1;
    return new Promise((resolve) => ends.push(() => resolve(value)));
  });
  return calls;
}

const objects = byHand("DISTRIBUTED_ALL_GATHER_OBJECT", []);
const barriers = byHand("PROCESS_GROUP_MONITORED_BARRIER", null);
const splits = byHand("PROCESS_GROUP_SPLIT_GROUP", null);
const sent = byHand("DISTRIBUTED_SEND_OBJECT_LIST", null);

test("a call begins when all before it is issued, and holds up what comes", async () => {
  const [pg, other] = [await group(1), await group(2)];
  const large = pg.allreduce(new Uint8Array(6 * MIB));
  const gathered = pr.allGatherObject([], 1, { group: pg });
  const small = pg.allreduce(new Uint8Array(4));
  const before = native.issuedInOrder.length;
  assert.deepEqual([large.isCompleted(), objects.begun], [false, 0]);
  await large;
  assert.deepEqual([native.issuedInOrder.length - before, objects.begun], [1, 1]);
  // Another group is not held up.
  await other.allreduce(new Uint8Array(4));
  assert.equal(small.isCompleted(), false);
  objects.end();
  await Promise.all([gathered, small]);
  assert.ok(pg.allreduce(new Uint8Array(4)).isCompleted());
});

test("calls of one group follow one another, whatever comes of them", async () => {
  const pg = await group(3);
  const before = barriers.begun;
  const [first, second] = [pg.monitoredBarrier(), pg.monitoredBarrier()];
  assert.equal(barriers.begun - before, 1);
  // Wrong arguments throw immediately all the same.
  native.resolve = () => {
    throw nativeError("InvalidType", "no");
  };
  assert.throws(() => pg.monitoredBarrier("x"), { name: "InvalidTypeError" });
  delete native.resolve;
  barriers.end();
  await first;
  await turn();
  assert.equal(barriers.begun - before, 2);
  barriers.end();
  await second;
});

test("a call that is given up in its line begins all the same, and ends", async () => {
  const pg = await group(4);
  const first = pg.monitoredBarrier();
  const end = new AbortController();
  const second = pg.monitoredBarrier({ signal: end.signal });
  const gathered = pr.allGatherObject([], 1, { group: pg, signal: end.signal });
  end.abort(new Error("enough"));
  await assert.rejects(second, /enough/);
  await assert.rejects(gathered, /enough/);
  const [begun, cancelled] = [barriers.begun, native.cancelled.length];
  barriers.end();
  await first;
  await turn();
  // The other ranks count on both; the native half ends the wait of the one.
  assert.equal(barriers.begun, begun + 1);
  assert.equal(native.cancelled.length, cancelled + 1);
  barriers.end();
  await turn();
  assert.equal(objects.begun, 2);
  objects.end();
  await pg.allreduce(new Uint8Array(4));
});

test("a group is not left later because of calls under way", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const [pg, other] = [await group(7), await group(8)];
  const end = new AbortController();
  const before = objects.begun;
  const given = pr.allGatherObject([], 1, { group: pg, signal: end.signal });
  const waited = pr.allGatherObject([], 1, { group: pg });
  end.abort(new Error("enough"));
  await assert.rejects(given, /enough/);
  const left = pg.shutdown();
  const calls = (key) => native.calls.filter((call) => call.key === key).length;
  await turn();
  context.mock.timers.tick(4999);
  assert.deepEqual(native.aborted, [], "they have a moment");
  context.mock.timers.tick(1);
  assert.deepEqual(native.aborted, [7]);
  // That ends what is under way.
  objects.end();
  await turn();
  assert.deepEqual([objects.begun, calls("PROCESS_GROUP_SHUTDOWN")], [before + 2, 0]);
  objects.end();
  await Promise.all([left, waited]);
  assert.equal(calls("PROCESS_GROUP_SHUTDOWN"), 1);
  // Where nothing is in the way there is no hurry.
  await other.shutdown();
  await turn();
  context.mock.timers.tick(5000);
  assert.deepEqual(native.aborted, [7]);
});

test("a rank is the same however it is named, and any rank is each of them", async () => {
  const pg = await group(6);
  const received = byHand("DISTRIBUTED_RECV_OBJECT_LIST", { payload: encode(["x"]), source: 0 });
  const from = (options) => pr.recvObjectList([null], { group: pg, ...options });
  // Stand-in: global rank 11 is rank 1 of the group.
  const messages = [from({ src: 11 }), from({ groupSrc: 1 }), from({ src: 12 }), from({})];
  messages.push(from({ groupSrc: 3 }));
  assert.equal(received.begun, 2, "the first of rank 1, and that of rank 2");
  const ended = [];
  messages.forEach((message, place) => message.then(() => ended.push(place)));
  for (const begun of [3, 3, 4, 5]) {
    received.end();
    await turn();
    assert.equal(received.begun, begun);
  }
  received.end();
  await Promise.all(messages);
  assert.deepEqual(ended, [0, 2, 1, 3, 4]);
  // Another direction is another order.
  const waiting = from({ src: 11 });
  const to = pr.sendObjectList(["x"], { groupDst: 1, group: pg });
  assert.equal(sent.begun, 1);
  sent.end();
  received.end();
  await Promise.all([waiting, to]);
});

test("objects to one rank follow one another and hold up nothing else", async () => {
  const pg = await group(5);
  const to = (dst) => pr.sendObjectList(["x"], { dst, group: pg });
  const before = sent.begun;
  const messages = [to(1), to(1), to(2)];
  assert.equal(sent.begun, before + 2);
  await pg.allreduce(new Uint8Array(4));
  sent.end();
  await messages[0];
  await turn();
  assert.equal(sent.begun, before + 3);
  sent.end();
  sent.end();
  await Promise.all(messages);
});

test("messages keep their order, and collectives theirs", async () => {
  const pg = await group(9);
  const gathered = pr.allGatherObject([], 1, { group: pg });
  const collective = pg.allreduce(new Uint8Array(4));
  const large = pg.send([new Uint8Array(6 * MIB)], 1);
  const small = pg.send([new Uint8Array(4)], 1);
  const received = pg.recv([new Uint8Array(4)], 1);
  const before = native.issuedInOrder.length;
  await Promise.all([large, small, received]);
  const issued = native.issuedInOrder.slice(before);
  // A receive does not wait for sends.
  const [SEND, RECV] = ["PROCESS_GROUP_SEND", "PROCESS_GROUP_RECV"];
  assert.deepEqual(issued.map(({ method }) => method), [RECV, SEND, SEND]);
  assert.deepEqual(issued.slice(1).map(({ bytesIn }) => bytesIn), [6 * MIB, 4]);
  assert.equal(collective.isCompleted(), false);
  // What they read may be what a collective writes.
  const shared = new Uint8Array(4);
  const [written, read] = [pg.allreduce(shared), pg.send([shared], 1)];
  await turn();
  assert.deepEqual([written.isCompleted(), read.isCompleted()], [false, false]);
  objects.end();
  await Promise.all([gathered, collective, written, read]);
});

test("nothing waits for a look for a message, nor does it wait for anything", async () => {
  const probes = byHand("PROCESS_GROUP_PROBE", { source: 1 });
  const pg = await group(10);
  const gathered = pr.allGatherObject([], 1, { group: pg });
  const found = pg.probe(1, 5);
  assert.equal(probes.begun, 1);
  objects.end();
  await gathered;
  await pg.send([new Uint8Array(4)], 1, 5);
  await pg.allreduce(new Uint8Array(4));
  probes.end();
  assert.deepEqual(await found, { source: 1 });
});

test("a group is left after the messages that were called before", async () => {
  const pg = await group(11);
  const large = pg.send([new Uint8Array(6 * MIB)], 1);
  const calls = () => native.calls.filter(({ key }) => key === "PROCESS_GROUP_SHUTDOWN").length;
  const [before, issued] = [calls(), native.issuedInOrder.length];
  const left = pg.shutdown();
  assert.deepEqual([native.issuedInOrder.length - issued, calls() - before], [0, 0]);
  await left;
  assert.deepEqual([native.issuedInOrder.length - issued, calls() - before], [1, 1]);
  await large;
});

test("calls that make groups wait for nothing, and only what leaves waits for them", async () => {
  const pg = await group(12);
  const barrier = pg.monitoredBarrier();
  const before = splits.begun;
  const made = [pg.splitGroup([0]), pg.splitGroup([0, 1])];
  assert.equal(splits.begun - before, 2);
  barriers.end();
  await barrier;
  assert.ok(pg.allreduce(new Uint8Array(4)).isCompleted());
  const calls = () => native.calls.filter(({ key }) => key === "PROCESS_GROUP_SHUTDOWN").length;
  const left = calls();
  const leaving = pg.shutdown();
  // What is called after that comes after it.
  const late = pg.splitGroup([1]);
  for (const ended of made) {
    await turn();
    assert.deepEqual([calls() - left, splits.begun - before], [0, 2]);
    splits.end();
    await ended;
  }
  await leaving;
  assert.equal(calls() - left, 1);
  await turn();
  assert.equal(splits.begun - before, 3);
  splits.end();
  await late;
});

test("where all ranks split a communicator, groups are made one after the other", async () => {
  const pg = await group(13);
  const { resolve } = native;
  native.resolve = (...call) => ({ ...resolve.apply(native, call), isConcurrent: false });
  const before = splits.begun;
  const [first, second] = [pg.splitGroup([0]), pg.splitGroup([0, 1])];
  delete native.resolve;
  assert.equal(splits.begun - before, 1);
  splits.end();
  await first;
  await turn();
  assert.equal(splits.begun - before, 2);
  splits.end();
  await second;
});
