// What each rank does in the tests of custom reductions.

import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import * as pr from "polyrank";

/** Neither commutes nor is it associative. */
const twiceTheLower = (a, b) => a.map((element, index) => 2 * element + b[index]);

function values(rank, count) {
  return Float64Array.from({ length: count }, (_, index) => (rank + 1) * 1000 + index);
}

function folded(size, count) {
  return Array.from({ length: size }, (_, rank) => values(rank, count)).reduce(twiceTheLower);
}

export async function combined({ rank, size, group }) {
  const op = pr.ReduceOp.custom(twiceTheLower);
  for (const count of [0, 1, 7, 3001, 300_007]) {
    const tensor = values(rank, count);
    await group.allreduce(tensor, op);
    assert.deepEqual(tensor, folded(size, count), `allreduce of ${count}`);

    const rooted = values(rank, count);
    await group.reduce(rooted, size - 1, { op });
    assert.deepEqual(rooted, rank === size - 1 ? folded(size, count) : values(rank, count));

    const part = new Float64Array(count);
    await group.reduceScatterSingle(part, values(rank, count * size), { op });
    const all = folded(size, count * size);
    assert.deepEqual(part, all.slice(count * rank, count * (rank + 1)), `scatter of ${count}`);
  }
  // In polyrank's own memory, by options, and a list for an array.
  const own = pr.alloc("f64", [7]);
  own.data.set(values(rank, 7));
  const reduceOp = pr.ReduceOp.custom((a, b) => [...twiceTheLower(a, b)]);
  await group.allreduce([own], { reduceOp });
  assert.deepEqual([...own.data], [...folded(size, 7)]);
  return true;
}

export async function everyType({ rank, group }) {
  const first = pr.ReduceOp.custom((a) => a);
  for (const dtype of Object.values(pr.DType)) {
    const tensor = pr.alloc(dtype, [5]);
    const bytes = new Uint8Array(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength);
    bytes.fill(1 - rank);
    await group.allreduce(tensor, first);
    const now = tensor.data;
    const came = new Uint8Array(now.buffer, now.byteOffset, now.byteLength);
    assert.ok(came.every((byte) => byte === 1), `${dtype}: ${came}`);
  }
  return true;
}

export async function inFlight({ rank, size, group }) {
  const op = pr.ReduceOp.custom(twiceTheLower);
  const tensors = Array.from({ length: 12 }, (_, count) => values(rank, count));
  const works = tensors.map((tensor) => group.allreduce(tensor, op));
  const plain = Int32Array.of(1);
  await group.allreduce(plain);
  assert.equal(plain[0], size);
  await Promise.all(works);
  tensors.forEach((tensor, count) => assert.deepEqual(tensor, folded(size, count)));
  return true;
}

export async function throws({ rank, group, argument: culprit }) {
  const thrown = new TypeError("enough");
  const op = pr.ReduceOp.custom((a) => {
    if (rank === culprit) throw thrown;
    return a;
  });
  try {
    await group.allreduce(Float32Array.of(1, 2), op);
    await group.barrier();
  } catch (error) {
    return error === thrown ? "the very error" : `${error.kind} ${error.rank} ${error.why}`;
  }
  return "nothing happened";
}

export async function wrongResults({ rank, size, store }) {
  const cases = [
    [(a) => a.slice(1), /returned 2 elements, not 3|aborted/],
    [() => undefined, /must return an array, not undefined|aborted/],
    [async (a) => a, /must not return a promise|aborted/],
  ];
  for (const [number, [fn, expected]] of cases.entries()) {
    const group = await pr.ProcessGroup.create(store, rank, size, { groupName: `wrong ${number}` });
    const op = pr.ReduceOp.custom(fn);
    await assert.rejects(async () => group.allreduce(Float32Array.of(1, 2, 3), op), expected);
  }
  return true;
}

export async function againstAnother({ rank, group }) {
  const op = rank === 0 ? pr.ReduceOp.custom((a) => a) : pr.ReduceOp.SUM;
  try {
    await group.allreduce(Float32Array.of(1, 2), op);
  } catch (error) {
    return `${error.kind} ${error.message}`;
  }
  return "nothing happened";
}

export async function letGo({ group }) {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  let fn = (a) => a;
  const known = new WeakRef(fn);
  await group.allreduce(Float32Array.of(1, 2), pr.ReduceOp.custom(fn));
  fn = null;
  const until = Date.now() + 20_000;
  while (known.deref() !== undefined && Date.now() < until) {
    gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return known.deref() === undefined;
}
