// Small arrays by the short way and by the long one: nobody sees which of them a call went. An
// object of options, even an empty one, makes a call go the long way.

import assert from "node:assert/strict";
import test from "node:test";

import * as pr from "../js/index.js";

/** Groups of `size` ranks that live in this process. */
async function join(size) {
  const store = new pr.HashStore();
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  return Promise.all(ranks.map((rank) => pr.ProcessGroup.join(store, rank, size)));
}

const leave = (groups) => Promise.all(groups.map((group) => group.shutdown()));

/** What `allreduce` makes of `arrays`, one of each rank, and the works. */
async function reduced(groups, arrays, ...rest) {
  const works = groups.map((group, rank) => group.allreduce(arrays[rank], ...rest));
  await Promise.all(works);
  return works;
}

const TYPES = [
  Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array,
  Float32Array, Float64Array,
];

for (const size of [1, 2, 3, 5, 8]) {
  test(`both ways give the same in a group of ${size}`, async () => {
    const groups = await join(size);
    for (const Type of TYPES) {
      for (const elements of [0, 1, 3, 8]) {
        for (const name of ["SUM", "AVG", "MAX", "MIN", "PRODUCT"]) {
          if (name === "AVG" && !Type.name.startsWith("Float")) continue;
          const fresh = () => groups.map((_, rank) => new Type(elements).fill(rank % 2 + 1));
          const [short, long] = [fresh(), fresh()];
          const op = pr.ReduceOp[name];
          const [work] = await reduced(groups, short, op);
          const [other] = await reduced(groups, long, op, {});
          assert.deepEqual(short, long, `${Type.name} ${elements} ${name}`);
          assert.equal(other.sequence, work.sequence + 1);
        }
      }
    }
    await leave(groups);
  });
}

/** As long as a few pages, as what is copied in the call, and longer than that. */
const LONGER = [1023, 4097, 16_385, 70_001, 300_001];

for (const size of [1, 2, 3]) {
  test(`both ways give the same for longer arrays in a group of ${size}`, async () => {
    const groups = await join(size);
    for (const Type of [Int8Array, Int32Array, Float64Array]) {
      for (const elements of LONGER) {
        const fill = (array, rank) => array.map((_, at) => (at + rank) % 7);
        const fresh = () => groups.map((_, rank) => fill(new Type(elements), rank));
        const makers = {
          whole: fresh,
          part: () => fresh().map((array) => {
            const whole = new Type(elements + 2).fill(9);
            whole.set(array, 1);
            return whole.subarray(1, elements + 1);
          }),
          shared: () => fresh().map((array) => {
            const bytes = new SharedArrayBuffer(array.byteLength);
            const copy = new Type(bytes);
            copy.set(array);
            return copy;
          }),
        };
        for (const [name, make] of Object.entries(makers)) {
          const [short, long] = [make(), make()];
          const works = await reduced(groups, short);
          const others = await reduced(groups, long, {});
          const about = `${name} ${Type.name} ${elements}`;
          const expected = (at) => groups.reduce((sum, _, rank) => sum + ((at + rank) % 7), 0);
          short.forEach((array, rank) => {
            assert.ok(array.every((value, at) => value === expected(at)), about);
            assert.deepEqual(array, long[rank], about);
            assert.equal(others[rank].sequence, works[rank].sequence + 1, about);
            if (name !== "part") return;
            const guards = new Type(array.buffer);
            assert.deepEqual([guards[0], guards.at(-1)], [9, 9], about);
          });
        }
      }
    }
    await leave(groups);
  });
}

/** Memory for `elements` numbers each, by how it lies. */
const MEMORY = {
  whole: (Type, elements) => new Type(elements),
  part: (Type, elements) => new Type(elements + 2).subarray(1, elements + 1),
  shared: (Type, elements) => {
    return new Type(new SharedArrayBuffer(elements * Type.BYTES_PER_ELEMENT));
  },
  owned: (Type, elements) => {
    const dtype = { Int8Array: "i8", Int32Array: "i32", Float64Array: "f64" }[Type.name];
    return pr.alloc(dtype, [elements + 1]).data.subarray(1);
  },
};

/** Calls on arrays of `elements` for each rank: what is given and taken, the call, which may go the
 * long way by an option, and what rank `rank` must find at `index`. */
const CALLS = {
  allGatherSingle: {
    lengths: (size) => [1, size],
    call: (group, given, taken, long) => group.allGatherSingle(taken, given, ...long),
    expected: (value, { elements }, index) => value(Math.floor(index / elements), index % elements),
  },
  reduceScatterSingle: {
    lengths: (size) => [size, 1],
    call: (group, given, taken, long) => group.reduceScatterSingle(taken, given, ...long),
    expected: (value, { size, rank, elements }, index) => {
      return sum(size, (from) => value(from, rank * elements + index));
    },
  },
  reduceScatterTensor: {
    lengths: (size) => [size, 1],
    call: (group, given, taken, long) => {
      const op = pr.ReduceOp.MAX;
      return pr.reduceScatterTensor(taken, given, { op, group, ...functionLong(long) });
    },
    expected: (value, { size, rank, elements }, index) => {
      const all = Array.from({ length: size }, (_, from) => value(from, rank * elements + index));
      return Math.max(...all);
    },
  },
  allToAllSingle: {
    lengths: (size) => [size, size],
    call: (group, given, taken, long) => group.allToAllSingle(taken, given, ...long),
    expected: (value, { rank, elements }, index) => {
      return value(Math.floor(index / elements), rank * elements + (index % elements));
    },
  },
  broadcast: {
    lengths: () => [0, 1],
    call: (group, _, taken, long) => group.broadcast(taken, group.size() - 1, ...long),
    expected: (value, { size }, index) => value(size - 1, index),
  },
  reduce: {
    lengths: () => [0, 1],
    call: (group, _, taken, long) => {
      const [dst, op] = [group.size() - 1, pr.ReduceOp.SUM];
      return pr.reduce(taken, { dst, op, group, ...functionLong(long) });
    },
    expected: (value, { size, rank }, index) => {
      return rank === size - 1 ? sum(size, (from) => value(from, index)) : value(rank, index);
    },
  },
};

/** Has a call of a function go the long way, as `long` has one of a method. */
const functionLong = (long) => (long.length === 0 ? {} : { asyncOp: false });

const sum = (size, of) => Array.from({ length: size }, (_, at) => of(at)).reduce((a, b) => a + b);

for (const size of [1, 2, 3]) {
  for (const [name, { lengths, call, expected }] of Object.entries(CALLS)) {
    test(`${name} gives the same both ways in a group of ${size}`, async () => {
      const groups = await join(size);
      const value = (rank, index) => (index * 5 + rank * 3) % 11;
      for (const Type of [Int8Array, Float64Array]) {
        for (const elements of [1, 7, 2049, 20_003]) {
          for (const [lies, make] of Object.entries(MEMORY)) {
            let sequence = 0;
            for (const long of [[], [{ timeout: 60_000 }]]) {
              const [given, taken] = lengths(size).map((times) => {
                const fresh = () => (times === 0 ? new Type(0) : make(Type, times * elements));
                return groups.map((_, rank) => fill(fresh(), (at) => value(rank, at)));
              });
              const run = (group, rank) => call(group, given[rank], taken[rank], long);
              const works = groups.map(run);
              const got = await Promise.all(works);
              for (const [rank, array] of taken.entries()) {
                const about = `${name} ${Type.name} ${elements} ${lies} ${long.length} of ${rank}`;
                const place = { size, rank, elements };
                const wrong = array.findIndex((found, at) => found !== expected(value, place, at));
                assert.equal(wrong, -1, about);
                assert.equal(got[rank], array, about);
                const isOutput = name === "broadcast" ? rank !== size - 1 : rank === size - 1;
                const outputs = lengths(size)[0] > 0 || isOutput ? [array] : [];
                assert.deepEqual(works[rank].result(), outputs, about);
                const isInput = (found, at) => found === value(rank, at);
                assert.ok(given[rank].every(isInput), about);
              }
              if (long.length > 0) assert.equal(works[0].sequence, sequence + 1);
              sequence = works[0].sequence;
            }
          }
        }
      }
      await leave(groups);
    });
  }
}

function fill(array, of) {
  for (let at = 0; at < array.length; at += 1) array[at] = of(at);
  return array;
}

test("messages of every length and kind of memory arrive, whichever way they go", async () => {
  const groups = await join(2);
  for (const elements of [1, 7, 2049, 40_003]) {
    for (const [lies, make] of Object.entries(MEMORY)) {
      for (const long of [{}, { tag: 3 }]) {
        const about = `${elements} ${lies} ${long.tag}`;
        const sent = fill(make(Int32Array, elements), (at) => at * 3);
        const received = make(Int32Array, elements);
        const [from, to] = groups;
        const works = [
          pr.send(sent, { dst: 1, group: from, ...long }),
          pr.recv(received, { src: 0, group: to, ...long }),
        ];
        assert.deepEqual(await Promise.all(works), [undefined, received], about);
        assert.ok(received.every((found, at) => found === at * 3), about);
        assert.equal(works[1].sourceRank(), 0, about);
        assert.deepEqual([works[0].result(), works[1].result()], [[], [received]], about);
      }
    }
  }
  await leave(groups);
});

test("arrays that share memory are treated as on the long way", async () => {
  const outcomes = [];
  for (const rest of [[], [{ timeout: 60_000 }]]) {
    const groups = await join(2);
    const whole = groups.map((_, rank) => fill(new Float32Array(20_002), (at) => at + rank));
    const works = groups.map(async (group, rank) => {
      await group.allToAllSingle(whole[rank].subarray(2), whole[rank].subarray(0, -2), ...rest);
    });
    const ends = await Promise.allSettled(works);
    outcomes.push({ ends: ends.map(({ reason }) => reason?.message), whole });
    await Promise.allSettled(groups.map((group) => group.shutdown()));
  }
  assert.deepEqual(outcomes[0], outcomes[1]);
});

test("an array that is transferred after the call is left alone, whatever its length", async () => {
  const groups = await join(2);
  for (const elements of LONGER) {
    const arrays = groups.map((_, rank) => new Float32Array(elements).fill(rank + 1));
    // The other rank is not there yet: the operation goes on when the call has returned.
    const first = groups[0].allreduce(arrays[0]);
    const taken = structuredClone(arrays[0], { transfer: [arrays[0].buffer] });
    await Promise.all([
      assert.rejects(async () => first, { kind: "InvalidArgument" }, `${elements}`),
      groups[1].allreduce(arrays[1]),
    ]);
    assert.ok(taken.every((value) => value === 1), `${elements}`);
    assert.ok(arrays[1].every((value) => value === 3), `${elements}`);
  }
  await leave(groups);
});

test("BigInts, parts of arrays and shared memory take the same way", async () => {
  const groups = await join(2);
  const large = groups.map(() => BigInt64Array.of(2n ** 40n));
  await reduced(groups, large);
  assert.deepEqual(large, groups.map(() => BigInt64Array.of(2n ** 41n)));
  const whole = groups.map(() => Float32Array.of(1, 2, 3, 4));
  await reduced(groups, whole.map((array) => array.subarray(1, 3)));
  assert.deepEqual(whole, groups.map(() => Float32Array.of(1, 4, 6, 4)));
  const shared = groups.map(() => new Int32Array(new SharedArrayBuffer(8)).fill(3));
  await reduced(groups, shared);
  assert.deepEqual(shared.map((array) => [...array]), [[6, 6], [6, 6]]);
  const owned = groups.map(() => pr.alloc("i32", [2]));
  owned.forEach(({ data }) => data.set([1, 2]));
  await reduced(groups, owned.map(({ data }) => data));
  assert.deepEqual(owned.map(({ data }) => [...data]), [[2, 4], [2, 4]]);
  await leave(groups);
});

test("a handle says the same of itself, whichever way its call went", async () => {
  const groups = await join(2);
  const arrays = groups.map(() => Float32Array.of(1));
  for (const rest of [[], [{}]]) {
    for (const work of await reduced(groups, arrays, ...rest)) {
      assert.equal(work.timeout, 30 * 60 * 1000);
      assert.ok(work.isCompleted() && work.isSuccess());
      assert.equal(work.exception(), null);
      assert.equal(work.result().length, 1);
      assert.ok(arrays.includes(work.result()[0]) && arrays.includes(await work));
      assert.equal(await work.getFutureResult(), pr.WorkResult.SUCCESS);
      assert.throws(() => work.sourceRank(), { kind: "InvalidArgument" });
    }
  }
  groups[0].setTimeout(1234);
  const [changed, other] = await reduced(groups, arrays);
  assert.deepEqual([changed.timeout, other.timeout], [1234, 30 * 60 * 1000]);
  await leave(groups);
});

test("calls that nobody awaits keep their order, short and long ones", async () => {
  const groups = await join(2);
  const small = groups.map((_, rank) => Float64Array.of(rank + 1));
  const big = groups.map((_, rank) => new Float64Array(1 << 20).fill(rank));
  const works = [];
  for (const [rank, group] of groups.entries()) {
    works.push(group.allreduce(small[rank]));
    works.push(group.allreduce(big[rank]));
    // On the array of an operation in flight, and behind one that is being copied.
    works.push(group.allreduce(small[rank], pr.ReduceOp.MAX));
    works.push(group.allreduce(small[rank]));
  }
  await Promise.all(works);
  assert.deepEqual(works.map(({ sequence }) => sequence), [1, 2, 3, 4, 1, 2, 3, 4]);
  assert.deepEqual(small, groups.map(() => Float64Array.of(6)));
  assert.ok(big.every((array) => array.every((value) => value === 1)));
  await leave(groups);
});

test("what is wrong is said by the long way", async () => {
  const groups = await join(2);
  const [group] = groups;
  const array = Float32Array.of(1);
  assert.throws(() => group.allreduce(array, pr.ReduceOp.BAND), { kind: "UnsupportedDType" });
  assert.throws(() => group.allreduce(array, pr.ReduceOp.PREMUL_SUM), pr.InvalidTypeError);
  assert.throws(() => group.allreduce.call({}, array), pr.InvalidTypeError);
  const gone = Float32Array.of(1);
  structuredClone(gone.buffer, { transfer: [gone.buffer] });
  assert.throws(() => group.allreduce(gone), /was given away/);
  await reduced(groups, groups.map(() => Float32Array.of(1)));
  const scaled = groups.map(() => Float32Array.of(1));
  await reduced(groups, scaled, pr.ReduceOp.premulSum(2));
  assert.deepEqual(scaled, groups.map(() => Float32Array.of(4)));
  group.abort();
  await assert.rejects(async () => group.allreduce(array), { kind: "Aborted" });
  await leave(groups);
});

test("a signal that is given makes a call go the long way, and ends it", async () => {
  const groups = await join(2);
  const giveUp = new AbortController();
  const arrays = groups.map((_, rank) => Float32Array.of(rank + 1));
  const work = groups[0].allreduce(arrays[0], { signal: giveUp.signal });
  giveUp.abort(new Error("enough"));
  await assert.rejects(async () => work, /enough/);
  await groups[1].allreduce(arrays[1]);
  assert.deepEqual(arrays, [Float32Array.of(1), Float32Array.of(3)]);
  await leave(groups);
});

/** An array that is longer than what is copied in a turn of the event loop, and is never lent. */
const slow = (value) => new Float32Array(new SharedArrayBuffer(12 << 20)).fill(value);

test("what a signal has cancelled does not read its array any more", async () => {
  const groups = await join(2);
  const [array, other] = [slow(1), slow(2)];
  const giveUp = new AbortController();
  const work = groups[0].allreduce(array, { signal: giveUp.signal });
  giveUp.abort(new Error("enough"));
  array.fill(-100);
  await assert.rejects(async () => work, /enough/);
  await groups[1].allreduce(other);
  assert.ok(other.every((value) => value === 3), "what the array was when it was cancelled");
  assert.ok(array.every((value) => value === -100), "no result is written either");
  await leave(groups);
});

test("what a signal has cancelled reads what those before it wrote, and no more", async () => {
  const groups = await join(2);
  const [array, other] = [slow(1), slow(2)];
  const giveUp = new AbortController();
  const first = groups[0].allreduce(array);
  const second = groups[0].allreduce(array, { signal: giveUp.signal });
  giveUp.abort(new Error("enough"));
  const both = [groups[1].allreduce(other), groups[1].allreduce(other)];
  await assert.rejects(async () => second, /enough/);
  await first;
  array.fill(-100);
  await Promise.all(both);
  assert.ok(other.every((value) => value === 6), "3 of the first, from both");
  assert.ok(array.every((value) => value === -100));
  await leave(groups);
});
