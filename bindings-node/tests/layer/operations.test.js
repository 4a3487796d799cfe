// How operations go their way: order, slices, completion, failures, signals, arrays that change
// while they are used. The native half is a stand-in that does what the test says.

import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import test from "node:test";

import { nativeError, standIn } from "./standin.js";

const MIB = 1024 * 1024;
const { pr, native, turns } = await standIn();
const handle = (id) => ({ type: "ProcessGroup", id });

native.answers.set("PROCESS_GROUP_NEW", ({ args }) => handle(args[1]));

/** Group `id` of a store that nobody looks at. */
const group = (id) => pr.ProcessGroup.join(new pr.HashStore(), id, 100);
native.answers.set("HASH_STORE_NEW", { type: "HashStore" });

/** Runs `body` while operations end only when the test ends them. */
async function manually(body) {
  native.completesAtOnce = false;
  try {
    await body();
  } finally {
    native.completesAtOnce = true;
  }
}

/** The native half of the operation that was prepared last. */
const last = () => native.works.at(-1);

/** Turns of the event loop until `condition` holds. */
async function until(condition) {
  while (!condition()) await turn();
}

test("awaiting an operation gives back what was passed", async () => {
  const pg = await group(1);
  const array = Float32Array.of(1, 2, 3);
  const list = [array, new Float64Array(2)];
  assert.equal(await pg.allreduce(array), array);
  assert.equal(await pg.allreduce(list), list);
  assert.equal(await pg.broadcast(array, 0), array);
  const outputs = [[new Int8Array(1)], [new Int8Array(1)]];
  assert.equal(await pg.allgather(outputs, [new Int8Array(1)]), outputs);
  assert.equal(await pg.barrier(), undefined);
  assert.equal(await pr.send(array, { dst: 1 }), undefined);
  const places = [array];
  assert.equal(await pr.gather(array, { gatherList: places, dst: 0 }), places);
  assert.equal(await pr.gather(array, places), places);
  assert.equal(await pr.gather(array, { dst: 1 }), undefined);
});

test("the native half's operation is given up when it has ended, and no sooner", async () => {
  const pg = await group(1);
  const array = Float32Array.of(1);
  await manually(async () => {
    const [work, cancelled] = [pg.allreduce(array), new AbortController()];
    const operation = last();
    const other = pg.allreduce(new Float32Array(1), { signal: cancelled.signal });
    const abandoned = last();
    cancelled.abort(new Error("the caller has left"));
    await assert.rejects(other, /the caller has left/);
    assert.deepEqual([operation.hasEnded, abandoned.hasEnded], [false, false]);
    native.end(operation);
    native.end(abandoned);
    assert.equal(await work, array);
    await until(() => abandoned.hasEnded);
    assert.ok(operation.hasEnded);
    assert.deepEqual([work.sequence, work.result()], [operation.sequence, [array]]);
  });
  pg.prepareAllreduce(array);
  assert.ok(last().hasEnded);
});

test("a prepared operation is one call after another, also if none is awaited", async () => {
  const array = new Float32Array(1);
  const prepared = (await group(1)).prepareAllreduce(array, pr.ReduceOp.MAX);
  assert.match(String(prepared), /^PreparedOperation\(allreduce of 1 f32 in /);
  assert.equal(await prepared.wait(), undefined);
  assert.equal(await prepared.start(), array);
  assert.equal(await prepared.wait(), array);
  assert.equal(await prepared.run(), undefined);
  await manually(async () => {
    const first = prepared.start();
    const begun = last();
    const later = [prepared.start(), prepared.run()];
    const issued = () => native.issuedInOrder.slice(begun.sequence);
    assert.deepEqual(issued(), [begun], "nothing else was issued");
    native.end(begun);
    assert.equal(await first, array);
    for (const [index, result] of [array, undefined].entries()) {
      await until(() => issued().length === index + 2);
      native.end(issued().at(-1));
      assert.equal(await later[index], result);
    }
  });
  assert.throws(() => new pr.PreparedOperation(), pr.InvalidTypeError);
});

test("a small operation that ends immediately needs no turn of the event loop", async () => {
  const before = turns.count;
  const work = (await group(1)).allreduce(new Float32Array(4));
  assert.equal(last().isWatched, false);
  assert.ok(work.isCompleted());
  await work;
  assert.equal(turns.count, before);
});

test("operations of one group are issued in the order of the calls", async () => {
  const pg = await group(2);
  const other = await group(3);
  const first = native.issuedInOrder.length;
  const large = new Uint8Array(9 * MIB).fill(7);
  const small = new Uint8Array(4);
  const works = [pg.allreduce(large), pg.allreduce(small), pg.barrier(), other.allreduce(small)];
  assert.equal(works[1].isCompleted(), false);
  await Promise.all(works);
  const issued = native.issuedInOrder.slice(first).filter((work) => work.group === 2);
  assert.deepEqual(issued.map((work) => work.bytes), [9 * MIB, 4, 0]);
  assert.ok(large.every((byte) => byte === 7));
});

test("no turn of the event loop copies more than 4 MiB", async () => {
  const pg = await group(4);
  await turn();
  native.copiedInTurn = [0];
  const before = turns.count;
  const arrays = Array.from({ length: 6 }, (_, index) => new Uint8Array(3 * MIB).fill(index + 1));
  await Promise.all(arrays.map((array) => pg.allreduce(array)));
  const most = Math.max(...native.copiedInTurn);
  assert.ok(most <= 4 * MIB, `${most} bytes were copied in one turn`);
  // 36 MiB go in and out.
  assert.ok(turns.count - before >= 8, `${turns.count - before} turns`);
  arrays.forEach((array, index) => assert.ok(array.every((byte) => byte === index + 1)));
});

test("what is only received takes nothing from what a turn may copy in", () =>
  manually(async () => {
    const pg = await group(4);
    await turn();
    native.reads = false;
    const received = pg.recv(new Uint8Array(3 * MIB), 1);
    native.reads = true;
    const sum = pg.allreduce(new Uint8Array(3 * MIB));
    const [first, second] = native.works.slice(-2);
    assert.deepEqual([first.issued, second.issued], [true, true], "both begin at the call");
    native.end(first);
    native.end(second);
    await Promise.all([received, sum]);
  }));

test("a result is written when the operation ends, whether or not anybody waits", () =>
  manually(async () => {
    const pg = await group(5);
    const array = new Uint8Array(8);
    pg.allreduce(array);
    assert.ok(last().isWatched);
    native.end(last(), { change: (bytes) => bytes.fill(9) });
    await until(() => array[7] === 9);
    const large = new Uint8Array(5 * MIB);
    const work = pg.allreduce(large);
    await until(() => last().issued);
    native.end(last(), { change: (bytes) => bytes.fill(8) });
    await work;
    assert.ok(large.every((byte) => byte === 8));
  }));

test("a failure that nobody waits for disturbs nobody, and one that is waited for is thrown", () =>
  manually(async () => {
    const unhandled = [];
    const onUnhandled = (reason) => unhandled.push(reason);
    process.on("unhandledRejection", onUnhandled);
    const pg = await group(6);
    const fields = { group: "g", rank: 2, why: "EOF", collective: "allreduce", sequence: 4 };
    const failure = { kind: "RankFailed", message: "rank 2 of group 'g' is gone", fields };
    const forgotten = pg.allreduce(new Uint8Array(8));
    native.end(last(), { failure });
    await until(() => forgotten.isCompleted());
    await turn();
    await turn();
    assert.deepEqual(unhandled, []);
    process.off("unhandledRejection", onUnhandled);
    await assert.rejects(forgotten, (error) => {
      assert.ok(error instanceof pr.RankFailedError && error instanceof pr.DistBackendError);
      assert.ok(error instanceof pr.PolyrankError && error instanceof Error);
      const { name, kind, rank, collective, seq, why } = error;
      assert.deepEqual(
        { name, kind, rank, collective, seq, why },
        {
          name: "RankFailedError",
          kind: "RankFailed",
          rank: 2,
          collective: "allreduce",
          seq: 4,
          why: "EOF",
        },
      );
      return true;
    });
    assert.equal(forgotten.isSuccess(), false);
    assert.equal(forgotten.exception().kind, "RankFailed");
    assert.equal(await forgotten.getFutureResult(), pr.WorkResult.COMM_ERROR);
  }));

test("wait() with a timeout ends the wait, not the operation", () =>
  manually(async () => {
    const pg = await group(7);
    const array = new Uint8Array(8);
    const work = pg.allreduce(array);
    await assert.rejects(work.wait({ timeout: 1 }), (error) => {
      assert.ok(error instanceof pr.WaitTimeoutError);
      assert.match(error.message, /^wait timed out after \d+ ms; allreduce \(operation \d+\) goes/);
      return error.seq === work.sequence && error.waitedMs >= 0;
    });
    native.end(last(), { change: (bytes) => bytes.fill(1) });
    assert.equal(await work.wait({ timeout: 60_000 }), array);
    assert.equal(await work.wait(), array);
    assert.throws(() => work.wait({ timeout: -1 }), pr.InvalidArgumentError);
    assert.throws(() => work.wait({ timeout: "5" }), pr.InvalidTypeError);
  }));

test("a signal ends the wait with its reason, and nothing is written back", () =>
  manually(async () => {
    const pg = await group(8);
    const array = new Uint8Array(8);
    const controller = new AbortController();
    const work = pg.allreduce(array, { signal: controller.signal });
    const native_ = last();
    const reason = new Error("the user left");
    const rejected = assert.rejects(work, (error) => error === reason);
    controller.abort(reason);
    await rejected;
    native.end(native_, { change: (bytes) => bytes.fill(3) });
    await turn();
    await turn();
    assert.ok(array.every((byte) => byte === 0));

    const count = native.works.length;
    const early = pg.allreduce(array, { signal: controller.signal });
    await assert.rejects(early, (error) => error === reason);
    assert.equal(native.works.length, count, "nothing is issued after the signal");

    const waiting = new AbortController();
    const other = pg.allreduce(array);
    const wait = assert.rejects(other.wait({ signal: waiting.signal }), { name: "AbortError" });
    waiting.abort();
    await wait;
    native.end(last());
    assert.equal(await other, array);
  }));

test("a queued operation is issued even if its signal fires: other ranks wait for it", async () => {
  const pg = await group(9);
  const controller = new AbortController();
  const large = pg.allreduce(new Uint8Array(9 * MIB));
  const queued = pg.allreduce(new Uint8Array(4), { signal: controller.signal });
  const native_ = last();
  controller.abort();
  await assert.rejects(queued, { name: "AbortError" });
  assert.ok(queued.isCompleted());
  await large;
  await until(() => native_.issued);
  assert.ok(queued.isCompleted());
});

test("arrays that are detached or shrink in flight are not written", () =>
  manually(async () => {
    const pg = await group(10);
    const gone = new Uint8Array(64);
    const work = pg.allreduce(gone);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    native.end(last(), { change: (bytes) => bytes.fill(5) });
    await assert.rejects(work, { name: "InvalidArgumentError" });

    const memory = new ArrayBuffer(64, { maxByteLength: 128 });
    for (const view of [new Uint8Array(memory), new Float32Array(memory, 0, 16)]) {
      memory.resize(64);
      const shrinking = pg.allreduce(view);
      memory.resize(16);
      native.end(last(), { change: (bytes) => bytes.fill(5) });
      await assert.rejects(shrinking, { name: "InvalidArgumentError" });
      assert.ok(new Uint8Array(memory).every((byte) => byte === 0));
    }
    memory.resize(64);
    for (const view of [new Uint8Array(memory), new Float32Array(memory)]) {
      memory.resize(64);
      const growing = pg.allreduce(view);
      memory.resize(128);
      native.end(last(), { change: (bytes) => bytes.fill(6) });
      await assert.rejects(growing, { name: "InvalidArgumentError" });
    }
    memory.resize(64);
    const part = pg.allreduce(new Uint8Array(memory, 0, 64));
    memory.resize(128);
    native.end(last(), { change: (bytes) => bytes.fill(6) });
    await part;
    assert.deepEqual([...new Uint8Array(memory)], [...Array(64).fill(6), ...Array(64).fill(0)]);
  }));

test("a call that cannot run is given up on all ranks, with the reason", async () => {
  const pg = await group(11);
  const other = await group(12);
  const transfer = ({ buffer }) => structuredClone(buffer, { transfer: [buffer] });
  const memory = new ArrayBuffer(16, { maxByteLength: 32 });
  const refuse = () => {
    last().issue = () => {
      throw nativeError("Backend", "it is broken");
    };
  };
  for (const [array, spoil, text] of [
    [new Uint8Array(16), transfer, /detached/],
    [new Float32Array(memory), () => memory.resize(32), /resized/],
    [new Uint8Array(16), refuse, /broken/],
  ]) {
    const blocking = pg.allreduce(new Uint8Array(9 * MIB));
    const lost = pg.allreduce(array);
    const native_ = last();
    spoil(array);
    const elsewhere = other.allreduce(new Uint8Array(16));
    await assert.rejects(lost, (error) => text.test(error.message));
    assert.match(native_.givenUp, text);
    assert.equal(native_.issued, false);
    await Promise.all([blocking, elsewhere]);
  }
  assert.equal(native.works.filter((work) => work.givenUp !== null).length, 3);
});

test("operations on one array follow one another", () =>
  manually(async () => {
    const pg = await group(20);
    const array = new Uint8Array(8).fill(1);
    const double = (bytes) => bytes.forEach((byte, at) => (bytes[at] = 2 * byte));
    const works = [1, 2, 3].map(() => pg.allreduce(array));
    const natives = native.works.slice(-3);
    // Another group's operations, and those on other arrays, behind them.
    const elsewhere = (await group(21)).allreduce(new Uint8Array(8));
    native.end(last());
    await elsewhere;
    const behind = pg.allreduce(new Uint8Array(8));
    const behindNative = last();
    for (const [index, work] of natives.entries()) {
      await until(() => work.issued);
      assert.ok(natives.slice(index + 1).every(({ issued }) => !issued));
      if (index < 2) assert.equal(behindNative.issued, false, "the order of the calls");
      native.end(work, { change: double });
      await works[index];
      assert.equal(array[0], 2 ** (index + 1));
    }
    await until(() => behindNative.issued);
    native.end(behindNative);
    await behind;
  }));

test("operations on other parts of an array, or that only read it, wait for nobody", () =>
  manually(async () => {
    const pg = await group(22);
    const buffer = new ArrayBuffer(64);
    const parts = [0, 1, 2, 3].map((part) => new Float32Array(buffer, 16 * part, 4));
    const matrix = new Float32Array(16);
    const columns = [0, 1, 2, 3].map((offset) => {
      return pr.tensor(matrix, { offset, shape: [4], strides: [4] });
    });
    const works = [...parts, ...columns].map((part) => pg.allreduce(part));
    const natives = native.works.slice(-8);
    await until(() => natives.every(({ issued }) => issued));
    for (const one of natives) native.end(one);
    await Promise.all(works);

    native.writes = false;
    const array = new Uint8Array(8);
    const reading = [pg.send([array], 1), pg.send([array], 2)];
    const readers = native.works.slice(-2);
    await until(() => readers.every(({ issued }) => issued));
    native.writes = true;
    for (const one of readers) native.end(one);
    await Promise.all(reading);

    // What polyrank owns is used where it lies: who writes it waits for who reads it.
    native.writes = false;
    const own = pr.alloc("f32", [4]);
    const sending = pg.send([own], 1);
    const sender = last();
    native.writes = true;
    const receiving = pg.recv([own], 1);
    const receiver = last();
    await turn();
    assert.equal(receiver.issued, false);
    native.end(sender);
    await sending;
    await until(() => receiver.issued);
    native.end(receiver);
    await receiving;
  }));

test("a signal whose reason is null fails what it ends", () =>
  manually(async () => {
    const pg = await group(23);
    for (const reason of [null, 0, ""]) {
      const controller = new AbortController();
      const work = pg.allreduce(new Uint8Array(4), { signal: controller.signal });
      const wait = work.wait({ signal: controller.signal });
      const native_ = last();
      controller.abort(reason);
      const late = pg.allreduce(new Uint8Array(4), { signal: controller.signal });
      for (const promise of [work, wait, late]) {
        const ended = await promise.then(() => "success", (error) => ({ error }));
        assert.deepEqual(ended, { error: reason });
      }
      assert.equal(work.isSuccess(), false);
      assert.equal(await work.getFutureResult(), pr.WorkResult.UNKNOWN);
      native.end(native_);
      await until(() => native_.isWatched);
    }
  }));

test("wrong arguments throw at the call", async () => {
  const pg = await group(13);
  native.answers.set("PROCESS_GROUP_ALLREDUCE", nativeError("InvalidType", "no such form"));
  assert.throws(() => pg.allreduce("x"), { name: "InvalidTypeError", message: "no such form" });
  native.answers.delete("PROCESS_GROUP_ALLREDUCE");
  assert.throws(() => pg.allreduce(new Int8Array(1), pr.ReduceOp.PREMUL_SUM), /needs its factor/);
  assert.throws(() => pg.allreduce(new Int8Array(1), { signal: 5 }), pr.InvalidTypeError);
});

test("a Work says what it is", async () => {
  const array = new Float32Array(2);
  const work = pr.recv(array, { src: 3 });
  assert.equal(work.sourceRank(), 3);
  assert.deepEqual(work.result(), [array]);
  assert.deepEqual(await work.getFuture(), [array]);
  assert.equal(await work.getFutureResult(), pr.WorkResult.SUCCESS);
  assert.equal(work.timeout, 1000);
  assert.equal(Object.prototype.toString.call(work), "[object Work]");
  assert.equal(await work.finally(() => {}), array);
  assert.equal(await work.synchronize(), array);
  assert.throws(() => pr.allReduce(array).sourceRank(), pr.InvalidArgumentError);
  assert.throws(() => new pr.Work(), pr.InvalidTypeError);
});
