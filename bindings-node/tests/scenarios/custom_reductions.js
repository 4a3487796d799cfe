// What each rank does in the tests of custom reductions.

import assert from "node:assert/strict";

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
    const bytes = () => {
      const { buffer, byteOffset, byteLength } = tensor.data;
      return new Uint8Array(buffer, byteOffset, byteLength);
    };
    bytes().fill(1 - rank);
    await group.allreduce(tensor, first);
    const came = bytes();
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
  const [floats, whole, large] = [Float32Array, Int32Array, BigUint64Array];
  const cases = [
    [floats, (a) => a.slice(1), "2 elements where 3 were expected"],
    [floats, () => undefined, "undefined where an array of 3 elements was expected"],
    [floats, (a) => Promise.reject(a), "a promise where an array .*: it must not be async"],
    [floats, () => "abc", "string where an array"],
    [floats, () => ({ length: 3 }), "Object where an array"],
    [floats, () => ["1", 2, 3], "element 0 of what it returned is string, which no Float32Array"],
    [whole, () => Float64Array.of(3.5, 1, 1), "a Float64Array where a Int32Array was expected"],
    [whole, () => [1, 3.5, 1], "element 1 of what it returned is 3.5, which no Int32Array holds"],
    [whole, () => [1, 1, 2 ** 31], "element 2 of what it returned is 2147483648, which no"],
    [large, () => [1n, -1, 1], "element 1 of what it returned is -1, which no BigUint64Array"],
  ];
  for (const [number, [Elements, fn, expected]] of cases.entries()) {
    const group = await pr.ProcessGroup.join(store, rank, size, { groupName: `wrong ${number}` });
    const op = pr.ReduceOp.custom(fn);
    const tensor = Elements.from([1, 2, 3], Elements === large ? BigInt : Number);
    await assert.rejects(async () => group.allreduce(tensor, op), (error) => {
      const where = `allreduce \\(operation 1 of group 'wrong ${number}'\\) on rank`;
      const failed = `the reduction function of ${where} . failed: .*${expected}`;
      assert.match(error.message, new RegExp(failed));
      // The other rank may hear of this one's first.
      if (error instanceof pr.AbortedError) return error.rank !== rank;
      assert.ok(error instanceof pr.ReductionFailedError && error.cause instanceof Error);
      return true;
    });
  }
  return true;
}

/** What is like an array of the operands' type is taken for one. */
export async function likeOperands({ group }) {
  const cases = [
    [Int32Array.of(1, 2), () => [3n, true], [3, 1]],
    [Int8Array.of(1, 2), () => Int32Array.of(-128, 127), [-128, 127]],
    [BigInt64Array.of(1n, 2n), () => [3, -(2n ** 63n)], [3n, -(2n ** 63n)]],
    [Float32Array.of(1, 2), () => Float64Array.of(0.5, 7), [0.5, 7]],
    [Float64Array.of(1, 2), () => BigInt64Array.of(3n, 4n), [3, 4]],
    [Uint8Array.of(1, 2), () => Buffer.from([200, 1]), [200, 1]],
  ];
  for (const [tensor, fn, expected] of cases) {
    await group.allreduce(tensor, pr.ReduceOp.custom(fn));
    assert.deepEqual([...tensor], expected);
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
  const known = await reduceOnce(group);
  // Who looks at a weak reference keeps what it is of until the turn ends.
  for (let turn = 0; turn < 200 && known.deref() !== undefined; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    globalThis.gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return known.deref() === undefined;
}

/** The function refers to its operator. */
async function reduceOnce(group) {
  let op = null;
  const fn = (a) => (op === null ? null : a);
  op = pr.ReduceOp.custom(fn);
  await group.allreduce(Float32Array.of(1, 2), op);
  return new WeakRef(fn);
}

/** Only the operations in flight have their operators. */
export async function inFlightOnly({ rank, size, group }) {
  const tensors = Array.from({ length: 20 }, (_, count) => values(rank, 50_000 + count));
  const works = tensors.map((tensor) => group.allreduce(tensor, pr.ReduceOp.custom(twiceTheLower)));
  globalThis.gc();
  await Promise.all(works);
  tensors.forEach((tensor, count) => assert.deepEqual(tensor, folded(size, 50_000 + count)));
  return true;
}

/** Of equal values, that with the lowest index. */
export async function located({ rank, size, group }) {
  const pairs = Float32Array.of(rank % 2, rank, -5, 10 - rank);
  const least = pairs.slice();
  await group.allreduce(pairs, pr.ReduceOp.MAXLOC);
  await group.allreduce(least, pr.ReduceOp.MINLOC);
  const odd = size > 1 ? 1 : 0;
  assert.deepEqual([...pairs], [odd, odd, -5, 11 - size]);
  assert.deepEqual([...least], [0, 0, -5, 11 - size]);
  const odds = Uint8Array.of(0, 7, rank);
  await group.allreduce(odds, { op: pr.ReduceOp.LXOR });
  assert.deepEqual([...odds], [0, size % 2, size > 1 ? (size - 1) % 2 : 0]);
  await assert.rejects(async () => group.allreduce(Float32Array.of(1, 2, 3), pr.ReduceOp.MAXLOC), {
    message: /must be even/,
  });
  return true;
}
