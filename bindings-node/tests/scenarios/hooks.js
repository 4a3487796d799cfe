// What each rank does in the tests of hooks.

import assert from "node:assert/strict";

import * as pr from "polyrank";

/** Hooks see the arrays of the call, in the order of their numbers. */
export async function arrays({ rank, size, group }) {
  const seen = [];
  group.registerPreHook(2, (args) => seen.push(["second", args.opId]));
  group.registerPreHook(-1, (args) => seen.push(args));
  const root = size - 1;
  const tensor = Float32Array.of(rank, 1, 2);
  const gathered = new Float32Array(3 * size);
  await group.allreduce(tensor, pr.ReduceOp.MAX);
  await group.broadcast(tensor, root);
  await group.allGatherSingle(gathered, tensor);
  await group.allreduce([pr.alloc("f32", [4])], pr.ReduceOp.premulSum(0.5));
  await group.barrier();
  const calls = seen.filter((one) => !Array.isArray(one));
  assert.deepEqual(seen.filter(Array.isArray).map(([, id]) => id), [0, 1, 2, 3, 4]);
  const names = ["ALLREDUCE", "BROADCAST", "ALLGATHER", "ALLREDUCE", "BARRIER"];
  assert.deepEqual(calls.map((args) => args.name), names);
  const [allreduce, broadcast, allgather, scaled, barrier] = calls;
  assert.equal(allreduce.inputTensors[0], tensor);
  assert.equal(allreduce.outputTensors[0], tensor);
  assert.deepEqual([allreduce.rank, allreduce.root, allreduce.asyncOp], [rank, -1, true]);
  assert.equal(allreduce.reduceOp, pr.ReduceOp.MAX);
  const [own, other] = rank === root
    ? [broadcast.inputTensors, broadcast.outputTensors]
    : [broadcast.outputTensors, broadcast.inputTensors];
  assert.deepEqual([own[0] === tensor, other.length, broadcast.root], [true, 0, root]);
  assert.equal(broadcast.reduceOp, null);
  assert.equal(allgather.inputTensors[0], tensor);
  assert.equal(allgather.outputTensors[0], gathered);
  assert.equal(scaled.reduceOp.factor, 0.5);
  assert.deepEqual([barrier.inputTensors, barrier.outputTensors], [[], []]);
  return [...gathered];
}

/** Handles, ends, messages, objects. */
export async function ends({ rank, group }) {
  const [posts, endings, names] = [[], [], []];
  group.registerPreHook(0, ({ name, root }) => names.push([name, root]));
  group.registerPostHook(0, (args) => posts.push(args));
  group.registerCompletionHook(0, (args) => endings.push(args));
  const array = Int32Array.of(rank);
  const work = group.allreduce(array);
  await work;
  assert.equal(posts[0].work, work);
  assert.deepEqual([posts[0].opId, endings[0].opId, endings[0].error], [0, 0, null]);
  assert.ok(endings[0].duration >= 0);
  if (rank === 0) await group.send([array], 1);
  else await group.recvAnysource([array]);
  await pr.withProcessGroup(group, () => pr.allGatherObject([null, null], rank, { group }));
  const message = rank === 0 ? ["SEND", 1] : ["RECVANYSOURCE", -1];
  assert.deepEqual(names, [["ALLREDUCE", -1], message, ["ALL_GATHER_OBJECT", -1]]);
  assert.equal(endings.length, 3);
  group.registerAbortHook(0, () => endings.push("aborted"));
  const failed = group.allreduce(new Int32Array(1 + rank));
  const error = await failed.then(() => null, (error) => error);
  assert.equal(error.kind, "CollectiveMismatch");
  assert.equal(endings[3], "aborted", "before the operation says so");
  assert.equal(endings[4].error, error);
  return true;
}

/** Operations that follow one another on one array read what those before have written, whatever
 * hooks look at it, and a hook may change it. */
export async function chained({ group }) {
  group.registerPreHook(0, pr.nanCheck());
  const sums = [];
  for (const length of [4, 100_000, 3_000_000]) {
    const array = new Float32Array(length).fill(1);
    await Promise.all([group.allreduce(array), group.allreduce(array), group.allreduce(array)]);
    sums.push(array[0], array[length - 1]);
  }
  group.registerPreHook(1, ({ inputTensors: [array] }) => array.fill(10));
  const array = Float32Array.of(1);
  await group.allreduce(array);
  sums.push(array[0]);
  group.unregisterPreHook(1);
  const large = Float32Array.of(3e38);
  // A hook throws in the call where nothing is in its way.
  const call = async () => group.allreduce(large);
  const ended = await Promise.allSettled([call(), call()]);
  return [sums, ended.map(({ reason }) => reason?.kind ?? "ended well")];
}

/** Handles are those of issued operations, other groups go on as they did, ends are not lost. */
export async function others({ rank, group, store }) {
  const other = await pr.ProcessGroup.join(new pr.PrefixStore("other", store), rank, 2, {
    groupName: "other",
  });
  const sequences = [];
  other.registerPostHook(0, ({ work }) => sequences.push(/#(\d+)/.exec(String(work))?.[1]));
  const endings = [];
  other.registerCompletionHook(0, ({ opId }) => endings.push(opId));
  const work = group.barrier();
  const isIssued = /#1 /.test(String(work));
  await work;
  let previous = null;
  other.registerPreHook(0, () => previous?.isCompleted());
  for (let round = 0; round < 20; round += 1) previous = other.allreduce(new Float32Array(9));
  await previous;
  await other.barrier();
  await other.shutdown();
  const numbers = [...Array(21).keys()];
  assert.deepEqual(endings.sort((left, right) => left - right), numbers);
  assert.deepEqual(sequences, numbers.map((number) => String(number + 1)));
  return isIssued;
}

/** Abort hooks run where nothing is in flight, too, but not for this rank's own abort. */
export async function aborts({ rank, group, store }) {
  const told = [];
  const failed = new Promise((resolve) => {
    group.registerAbortHook(0, () => {
      told.push("aborted");
      resolve();
    });
  });
  await group.barrier();
  if (rank === 0) {
    await store.get("ready");
    group.abort();
    await group.barrier().catch(() => null);
    await new Promise((resolve) => setImmediate(resolve));
    return told;
  }
  // An idle process has nothing to live for.
  const alive = setInterval(() => {}, 1000);
  await store.set("ready", "");
  await failed;
  clearInterval(alive);
  await group.barrier().catch(() => null);
  return told;
}

/** A hook that has to be awaited, and a signal that a hook aborts. */
export async function awaited({ rank, group, store }) {
  const end = new AbortController();
  const array = Float32Array.of(1);
  let ended = null;
  if (rank === 0) {
    group.registerPreHook(0, () => end.abort(new Error("enough")));
    const work = group.allreduce(array, { signal: end.signal });
    ended = await work.catch((error) => error.message);
    group.unregisterPreHook(0);
    await store.set("given up", "");
  } else {
    await store.get("given up");
    await group.allreduce(array);
  }
  await group.barrier();
  if (rank === 0) group.registerPreHook(1, async () => Promise.reject(new Error("late")));
  const call = async () => group.barrier();
  const error = await call().catch((error) => error);
  return [ended, error.kind, error.message];
}

/** An error in a hook is the caller's own, and all ranks learn of it. */
export async function stops({ rank, size, group }) {
  const mine = new RangeError("not this one");
  if (rank === 1) {
    group.registerPreHook(4, ({ opId }) => {
      if (opId === 1) throw mine;
    });
  }
  const array = Float64Array.of(1);
  await group.allreduce(array);
  assert.deepEqual([...array], [size]);
  if (rank === 1) {
    assert.throws(() => group.allreduce(array), mine);
    return "stopped";
  }
  const error = await group.allreduce(array).then(() => null, (error) => error);
  assert.deepEqual([...array], [size]);
  return `${error.rank} ${error.message}`;
}

/** NaN is found before it spreads. */
export async function finite({ rank, group }) {
  group.registerPreHook(0, pr.nanCheck());
  const matrix = pr.tensor(new Float32Array(12), { shape: [3, 4] });
  await group.allreduce(matrix);
  const large = new Float64Array(200_000).fill(1);
  await group.allreduce(large);
  if (rank === 0) large[150_000] = NaN;
  try {
    await group.allreduce(large);
    return "it spread";
  } catch (error) {
    return [error.kind, error.message];
  }
}

/** Without hooks again, and with functions that fail where that changes nothing. */
export async function harmless({ rank, size, group }) {
  const fail = () => {
    throw new Error("for nothing");
  };
  const warnings = [];
  process.on("warning", (warning) => warnings.push(warning.message));
  group.registerPostHook(1n, fail);
  group.registerCompletionHook(1, fail);
  const array = Float32Array.of(1);
  await group.allreduce(array);
  const rejects = async () => fail();
  group.registerPostHook(1, rejects);
  group.registerCompletionHook(1, rejects);
  await group.allreduce(array);
  group.unregisterPostHook(1);
  group.unregisterCompletionHook(1);
  group.unregisterPreHook(12);
  await group.allreduce(array);
  assert.equal(array[0], size ** 3);
  assert.throws(() => group.registerPreHook(0, 3), { kind: "InvalidType" });
  assert.throws(() => group.registerPreHook("a", fail), { kind: "InvalidType" });
  const order = [];
  for (const id of [2n ** 60n + 1n, 3, -(2n ** 62n), 2n ** 60n]) {
    group.registerPreHook(id, () => order.push(String(id)));
  }
  await group.barrier();
  const sorted = [-(2n ** 62n), 3, 2n ** 60n, 2n ** 60n + 1n].map(String);
  assert.deepEqual(order, sorted);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(warnings.length, 4);
  return warnings.every((text) => text.includes("for nothing"));
}

/** Names that the user gives to operations: for hooks, in errors, through awaits. */
export async function names({ rank, size, group }) {
  const seen = [];
  const note = ({ name, commName }) => seen.push(`${name} ${commName}`);
  group.registerPreHook(0, note);
  group.registerPostHook(0, note);
  group.registerCompletionHook(0, note);
  const array = Float64Array.of(1);
  const result = await pr.recordComm("outer", async () => {
    await group.allreduce(array);
    pr.recordComm("inner", () => void group.broadcast(array, 0));
    await group.allreduce(array);
    await pr.allGatherObject(Array.from({ length: size }, () => null), rank, { group });
    return "the result";
  });
  await group.barrier();
  assert.equal(result, "the result");
  const calls = ["ALLREDUCE outer", "BROADCAST inner", "ALLREDUCE outer"];
  const objects = ["ALL_GATHER_OBJECT outer"];
  const all = [...calls, "BARRIER null"].flatMap((call) => [call, call, call]);
  assert.deepEqual(seen.toSorted(), [...all, ...objects, ...objects].toSorted());
  group.unregisterPreHook(0);
  group.unregisterPostHook(0);
  group.unregisterCompletionHook(0);
  // Without hooks, and for what would be a short call, too.
  if (rank === 0) {
    const work = pr.recordComm("layer 1", () => group.allreduce(array));
    const late = await work.wait({ timeout: 1 }).then(() => null, (error) => error);
    if (size > 1) {
      assert.ok(late instanceof pr.WaitTimeoutError);
      assert.equal(late.collective, "allreduce 'layer 1'");
    }
    await group.send([new Float64Array(1)], size - 1);
    await work;
  } else {
    if (rank === size - 1) await group.recv([new Float64Array(1)], 0);
    await group.allreduce(array);
  }
  if (size === 1) await group.recv([array], 0);
  assert.throws(() => pr.recordComm(3, () => {}), pr.InvalidTypeError);
  assert.throws(() => pr.recordComm("without a callback"), pr.InvalidTypeError);
  const wrong = pr.recordComm("layer 4", () => {
    const received = group.recv([new Float64Array(2)], rank);
    group.send([new Float64Array(3)], rank).catch(() => {});
    return received.then(() => null, (error) => error);
  });
  assert.match((await wrong).message, /has 24 bytes, .* 16 bytes; recv 'layer 4' cannot complete/);
  const left = pr.recordComm("left open", () => group.recv([array], (rank + 1) % size));
  await group.barrier();
  group.abort();
  const error = await left.then(() => null, (failure) => failure);
  assert.equal(error.collective, "recv 'left open'");
  assert.match(error.message, /; recv 'left open' \(operation \d+\) cannot complete$/);
  return true;
}
