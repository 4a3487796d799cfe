// What each rank does in the tests of element types and memory.

/** The dtype of every kind of array, by a sum over two ranks of what each of them has. */
export async function everyArray({ pr, group, rank }) {
  const kinds = [
    Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array,
    Float32Array, Float64Array, BigInt64Array, BigUint64Array, globalThis.Float16Array,
  ].filter((kind) => kind !== undefined);
  const got = {};
  for (const Kind of kinds) {
    const one = Kind.name.startsWith("Big") ? BigInt : Number;
    const array = Kind.of(one(rank + 1), one(20 * rank));
    await group.allreduce(array);
    got[Kind.name] = [...array].map(String);
  }
  const buffer = Buffer.from([rank, 200]);
  await group.allreduce(buffer, { op: pr.ReduceOp.MAX });
  got.Buffer = [...buffer].map(String);
  const view = new DataView(new ArrayBuffer(4), 1, 2);
  view.setUint8(0, rank + 5);
  await group.allreduce(view);
  got.DataView = [...new Uint8Array(view.buffer)].map(String);
  const shared = new Float32Array(new SharedArrayBuffer(8));
  shared.set([rank, 3]);
  await group.allreduce(shared);
  got.shared = [...shared].map(String);
  // Shared memory is copied by words; these begin and end in the middle of some.
  got.wrongSharedParts = [];
  for (let start = 0; start < 9; start += 1) {
    for (let bytes = 0; bytes < 28; bytes += 3) {
      const all = new Uint8Array(new SharedArrayBuffer(40)).fill(7);
      const part = all.subarray(start, start + bytes);
      for (const at of part.keys()) part[at] = at + rank;
      await group.allreduce(part);
      const expected = (at) => (at >= start && at < start + bytes ? 2 * (at - start) + 1 : 7);
      const isRight = all.every((value, at) => value === expected(at));
      if (!isRight) got.wrongSharedParts.push([...all].join());
    }
  }
  const whole = Float32Array.of(9, rank, rank, 9);
  await group.allreduce(whole.subarray(1, 3));
  got.subarray = [...whole].map(String);
  return got;
}

/** Element types that arrays do not have, views with strides, memory of polyrank. */
export async function everyTensor({ pr, group, rank }) {
  const got = {};
  const sum = async (name, data, options) => {
    await group.allreduce(pr.tensor(data, options));
    got[name] = [...data];
  };
  // 1.5 and 2 as halves; 1.0 and 0.5 as the upper halves of floats.
  await sum("f16", Uint16Array.of(0x3e00, 0x4000), { dtype: "f16" });
  await sum("bf16", Uint16Array.of(0x3f80, 0x3f00), { dtype: "bf16" });
  await sum("bool", Uint8Array.of(rank, 0, 1), { dtype: "bool" });
  await sum("complex64", Float32Array.of(rank, 1, 2, 3), { dtype: "complex64" });
  await sum("complex128", Float64Array.of(rank, 1), { dtype: "complex128" });
  const grid = Float32Array.from({ length: 12 }, (_, at) => at + 100 * rank);
  await sum("column", grid, { shape: [3], strides: [4], offset: 1 });
  const rows = Int32Array.from({ length: 6 }, (_, at) => at);
  await sum("transposed", rows, { shape: [3, 2], strides: [1, 3] });

  const owned = pr.alloc("f64", [2, 2]);
  owned.data.fill(rank + 1);
  const result = await group.allreduce(owned);
  got.owned = [...owned.data];
  got.ownedIsResult = result === owned && owned.data !== null;
  got.ownedStays = owned.data.buffer === owned.data.buffer;

  const sparse = pr.tensor(Float32Array.of(1, 2, 3, 4), { shape: [2], strides: [2] });
  const pending = group.allreduce(sparse);
  // What lies between the elements is not the operation's: it may change meanwhile.
  sparse.data[1] = 77;
  await pending;
  got.between = [...sparse.data];
  return got;
}

/** Results that lie in a part of what is given, and the other way round; what is wrong of them. */
export async function partsOfAnother({ group, rank, size }) {
  const wrong = [];
  const check = (name, array, expected) => {
    if (!array.every((value, at) => value === expected(at))) wrong.push(`${name}: ${array.length}`);
  };
  const sumOfRanks = (size * (size - 1)) / 2;
  for (const count of [1, 1000, 65_537, 400_000]) {
    const given = () => Float32Array.from({ length: size * count }, (_, at) => (at % 100) + rank);
    const sum = (at) => size * (at % 100) + sumOfRanks;
    // Its own part, one that it gives away, and one that is neither.
    for (const start of [rank * count, 0, (size - 1) * Math.floor(count / 2)]) {
      const array = given();
      await group.reduceScatterSingle(array.subarray(start, start + count), array);
      const isResult = (at) => at >= start && at < start + count;
      const result = (at) => sum(rank * count + at - start);
      check("reduceScatter", array, (at) => (isResult(at) ? result(at) : (at % 100) + rank));
    }
    const all = given();
    await group.allGatherSingle(all, all.subarray(rank * count, (rank + 1) * count));
    check("allGather", all, (at) => (at % 100) + Math.floor(at / count));
    const swapped = given();
    await group.allToAllSingle(swapped, swapped);
    const from = (at) => rank * count + (at % count);
    check("allToAll", swapped, (at) => (from(at) % 100) + Math.floor(at / count));
  }
  return wrong;
}
