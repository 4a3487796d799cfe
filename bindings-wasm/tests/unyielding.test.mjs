// Loops of awaits that give the event loop no turn, in which no finalizer runs: what an operation
// needed must be given back when it ends.

import assert from "node:assert/strict";
import { test } from "node:test";

import WebSocket from "ws";

/** What finalizers wait for, less what was taken back. */
let registered = 0;

class CountingRegistry extends globalThis.FinalizationRegistry {
  register(...given) {
    registered += 1;
    super.register(...given);
  }

  unregister(token) {
    const isKnown = super.unregister(token);
    if (isKnown) registered -= 1;
    return isKnown;
  }
}

globalThis.FinalizationRegistry = CountingRegistry;
globalThis.WebSocket ??= WebSocket;
const pr = await import("../js/index.js");
const { default: init } = await import("../js/wasm/polyrank.js");
const { memory } = await init();

const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
const small = Float32Array.of(1);
const large = new Float32Array(10_000);
const window = await group.newWindow();
await window.tensorRegister(pr.alloc("f32", [4]));
const prepared = group.prepareAllreduce(small);
const store = new pr.HashStore();
const broken = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
broken.abort();

/** What is called again and again, by its name: the first as often as a program may. */
const CALLS = {
  "small allreduces": () => group.allreduce(small),
  "allreduces with options": () => group.allreduce(small, { timeout: 10_000 }),
  "large allreduces": () => group.allreduce(large),
  "collectives of lists": () => group.allgather([[new Float32Array(1)]], [small]),
  "barriers": () => group.barrier(),
  "messages": () => {
    const received = group.recv([new Float32Array(1)], 0, 0);
    return Promise.all([group.send([small], 0, 0), received]);
  },
  "futures": () => group.allreduce(small).getFuture(),
  "results of futures": () => group.allreduce(small, { timeout: 10_000 }).getFutureResult(),
  "waits with a limit": () => group.allreduce(small).wait({ timeout: 1000 }),
  "prepared operations": () => prepared.run(),
  "prepared operations and their handles": () => prepared.start(),
  "windows": async () => {
    await window.put(small, 0, 0);
    await window.get(small, 0, 0);
  },
  "objects": () => pr.allGatherObject([null], { a: 1 }, group),
  "stores": async () => {
    await store.set("key", "value");
    await store.get("key");
  },
  "names": () => pr.recordComm("layer", () => group.allreduce(small)),
  "failures": () => broken.allreduce(small, { timeout: 10_000 }).catch(() => null),
  "groups that are asked for": () => pr.withProcessGroup(group, () => pr.currentProcessGroup()),
};

for (const [name, call] of Object.entries(CALLS)) {
  const rounds = name === "small allreduces" ? 100_000 : 3000;
  test(`${rounds} ${name} keep nothing`, async () => {
    for (let round = 0; round < 1000; round += 1) await call();
    const [bytes, before] = [memory.buffer.byteLength, registered];
    for (let round = 0; round < rounds; round += 1) await call();
    assert.equal(memory.buffer.byteLength, bytes);
    assert.ok(registered <= before, `${registered - before} more registrations`);
  });
}

test("a handle says the same when its operation has ended", async () => {
  const works = [
    group.allreduce(small),
    group.allreduce(small, { timeout: 10_000 }),
    group.allreduce(large),
    prepared.start(),
  ];
  for (const [index, work] of works.entries()) {
    const array = index === 2 ? large : small;
    assert.equal(await work, array);
    assert.equal(await work.wait(), array);
    assert.equal(await work.wait({ timeout: 1 }), array);
    assert.deepEqual(await work.getFuture(), [array]);
    assert.equal(await work.getFutureResult(), pr.WorkResult.SUCCESS);
    assert.deepEqual(work.result(), [array]);
    assert.deepEqual([work.isCompleted(), work.isSuccess()], [true, true]);
    assert.equal(work.exception(), null);
    assert.equal(work.compressionError, null);
    assert.equal(work.timeout, index === 1 ? 10_000 : works[0].timeout);
    assert.equal(typeof work.duration, "number");
    assert.throws(() => work.sourceRank(), { name: "InvalidArgumentError" });
    assert.match(String(work), /^Work\(allreduce #\d+ of .+, complete, \d+ ms\)$/);
  }
  const numbers = works.map((work) => work.sequence);
  assert.deepEqual(numbers, numbers.map((_, at) => numbers[0] + at));
});

test("a handle on many tensors gives all of them when its operation has ended", async () => {
  const arrays = Array.from({ length: 40 }, (_, index) => Float32Array.of(index));
  const work = group.allreduce(arrays);
  await work;
  assert.deepEqual(work.result(), arrays);
});

test("a received message says whom it is from when it has ended", async () => {
  const works = [group.recv([new Float32Array(1)], 0, 7), group.send([small], 0, 7)];
  await Promise.all(works);
  assert.equal(works[0].sourceRank(), 0);
});

test("an operation has the name of its block, in a page, too", async () => {
  const work = pr.recordComm("layer 1", () => group.allreduce(small));
  await work;
  assert.match(String(work), /^Work\(allreduce 'layer 1' #\d+ of .+, complete, \d+ ms\)$/);
  assert.doesNotMatch(String(group.allreduce(small)), /layer 1/);
});
