// Every collective and both messages as prepared operations: each rank starts, runs or makes the
// ordinary call, whichever its turn says. What comes is worked out by hand.

import assert from "node:assert/strict";
import test from "node:test";

import * as pr from "../js/index.js";
import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("prepared");

/** Groups of `size` ranks that live in this process. */
async function join(size) {
  const store = new pr.HashStore();
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  return Promise.all(ranks.map((rank) => pr.ProcessGroup.join(store, rank, size)));
}

const leave = (groups) => Promise.all(groups.map((group) => group.shutdown()));

const ROUNDS = 3;

/** What `value` gives for each rank below `until`, added. */
const sum = (until, value) => {
  let total = 0;
  for (let rank = 0; rank < until; rank += 1) total += value(rank);
  return total;
};

/** The cases of `size` ranks, on arrays that `make` makes of so many elements. Each has, for a
 * rank: the methods `name` and `call`, with what `arrays` makes; `fill` gives what the last of
 * those holds before a round, `expected` what the first of them holds after it. */
function cases(size, count, make) {
  const root = size - 1;
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  const one = () => [make(count)];
  const value = (rank, round, at) => (rank + round + at) % 5;
  const to = (rank, other, round, at) => (2 * rank + 3 * other + round + at) % 5;
  const parts = (rank, round) => ranks.map((other) => (at) => to(rank, other, round, at));
  const own = (rank, round) => [(at) => value(rank, round, at)];
  const added = (until) => (_, round, at) => sum(until, (rank) => value(rank, round, at));
  const inPlace = (name, call, expected, ...rest) => {
    return { name, call, arrays: one, rest, fill: own, expected };
  };
  const flat = (name, call, [out, taken], given, expected) => ({
    name,
    call,
    arrays: () => [make(out * count), make(taken * count)],
    rest: [],
    fill: given,
    expected,
  });
  return [
    inPlace("prepareAllreduce", "allreduce", added(size)),
    inPlace("prepareReduce", "reduce", (rank, round, at) => {
      return rank === root ? added(size)(rank, round, at) : value(rank, round, at);
    }, root),
    inPlace("prepareBroadcast", "broadcast", (_, round, at) => value(root, round, at), root),
    inPlace("prepareScan", "scan", (rank, round, at) => added(rank + 1)(rank, round, at)),
    inPlace("prepareExscan", "exscan", (rank, round, at) => {
      return rank === 0 ? value(0, round, at) : added(rank)(rank, round, at);
    }),
    flat("prepareAllgather", "allGatherSingle", [size, 1], own, (_, round, at) => {
      return value(Math.floor(at / count), round, at % count);
    }),
    flat("prepareReduceScatter", "reduceScatterSingle", [1, size], parts, (rank, round, at) => {
      return sum(size, (from) => to(from, rank, round, at));
    }),
    flat("prepareAlltoall", "allToAllSingle", [size, size], parts, (rank, round, at) => {
      return to(Math.floor(at / count), rank, round, at % count);
    }),
  ];
}

/** What a rank does in a round: `way` says how. The work of a start tells what it is. */
async function take(way, group, prepared, call) {
  if (way === 0) {
    const work = prepared.start();
    assert.match(String(work), /^Work\(/);
    await work;
  } else if (way === 1) {
    assert.equal(await prepared.run(), undefined);
  } else {
    await call(group);
  }
}

for (const size of [1, 2, 3, 5]) {
  test(`collectives that are prepared in a group of ${size}`, async () => {
    const groups = await join(size);
    for (const Type of [Float32Array, Int16Array, Float64Array]) {
      for (const count of [0, 1, 7, 4099]) {
        for (const known of cases(size, count, (length) => new Type(length))) {
          const arrays = groups.map(() => known.arrays());
          const prepared = groups.map((group, rank) => {
            return group[known.name](...arrays[rank], ...known.rest);
          });
          for (let round = 0; round < ROUNDS; round += 1) {
            const rounds = groups.map((group, rank) => {
              const given = arrays[rank].at(-1);
              known.fill(rank, round).forEach((part, index) => {
                for (let at = 0; at < count; at += 1) given[index * count + at] = part(at);
              });
              const call = () => group[known.call](...arrays[rank], ...known.rest);
              return take((rank + round) % 3, group, prepared[rank], call);
            });
            await Promise.all(rounds);
            arrays.forEach(([result], rank) => {
              const expected = result.map((_, at) => known.expected(rank, round, at));
              assert.deepEqual(result, expected, `${known.name} ${Type.name} ${count} ${round}`);
            });
          }
        }
      }
    }
    await leave(groups);
  });

  test(`lists, barriers and messages that are prepared in a group of ${size}`, async () => {
    const groups = await join(size);
    const lists = groups.map((_, rank) => {
      return rank === size - 1 ? groups.map(() => new Int32Array(3)) : [];
    });
    const own = groups.map(() => new Int32Array(3));
    const next = (rank) => (rank + 1) % size;
    const before = (rank) => (rank + size - 1) % size;
    const prepared = groups.map((group, rank) => ({
      gather: group.prepareGather(lists[rank], own[rank], size - 1),
      scatter: group.prepareScatter(own[rank], lists[rank], size - 1),
      barrier: group.prepareBarrier({ timeout: 60_000 }),
      send: group.prepareSend(own[rank], next(rank), { tag: rank % 2 }),
    }));
    const taken = groups.map(() => new Int32Array(3));
    const receives = groups.map((group, rank) => {
      return group.prepareRecv(taken[rank], before(rank), { tag: before(rank) % 2 });
    });
    assert.match(String(prepared[0].barrier), /^PreparedOperation\(barrier in /);
    assert.match(String(receives[0]), /^PreparedOperation\(recv of 3 i32 in /);
    for (let round = 0; round < ROUNDS; round += 1) {
      own.forEach((array, rank) => array.fill(rank + round));
      await Promise.all(groups.map((group, rank) => {
        const call = () => group.gather(lists[rank], own[rank], size - 1);
        return take((rank + round) % 3, group, prepared[rank].gather, call);
      }));
      lists[size - 1].forEach((array, rank) => {
        assert.deepEqual([...array], [rank + round, rank + round, rank + round]);
        array.fill(10 * rank + round);
      });
      await Promise.all(groups.map((group, rank) => {
        const call = () => group.scatter(own[rank], lists[rank], size - 1);
        return take((rank + round) % 3, group, prepared[rank].scatter, call);
      }));
      own.forEach((array, rank) => assert.equal(array[2], 10 * rank + round));
      await Promise.all(groups.map((group, rank) => {
        return take((rank + round) % 3, group, prepared[rank].barrier, () => group.barrier());
      }));
      const sent = groups.map((_, rank) => prepared[rank].send.start());
      const works = receives.map((receive) => receive.start());
      await Promise.all([...sent, ...works]);
      works.forEach((work, rank) => assert.equal(work.sourceRank(), before(rank)));
      taken.forEach((array, rank) => assert.equal(array[0], 10 * before(rank) + round));
    }
    await leave(groups);
  });
}

for (const size of [1, 2, 3, 5]) {
  test(`prepared operations of ${size} processes`, async () => {
    const results = await onRanks(size, SCENARIOS, "everyWay");
    results.forEach((got, rank) => {
      const rounds = [0, 1, 2, 3, 4, 5];
      const all = Array.from({ length: size }, (_, other) => other);
      const total = (round) => all.reduce((sum, other) => sum + other + round, 0);
      assert.deepEqual(got.sums, rounds.map(total));
      assert.deepEqual(got.told, rounds.map((round) => 7 + round));
      assert.deepEqual(got.gathered, rounds.map((round) => all.map((other) => other * round)));
      assert.deepEqual(got.values, [true, true, true, true]);
      assert.deepEqual(got.sent, rounds.map((round) => (rank + size - 1) % size + round));
      assert.equal(got.sequences[1] - got.sequences[0], 2);
    });
  });
}

test("wrong arguments are found when an operation is prepared", async () => {
  const [group, other] = await join(2);
  const [one, two] = [new Float32Array(1), new Float32Array(2)];
  const invalid = [
    () => group.prepareBroadcast(one, 2),
    () => group.prepareAllgather(one, one),
    () => group.prepareReduceScatter(two, two),
    () => group.prepareAlltoall(two, two, { outputSplitSizes: [2, 1], inputSplitSizes: [1, 1] }),
    () => group.prepareGather([one], one, 0),
    () => group.prepareScatter(one, [two, two], 0),
    () => group.prepareSend(one, 2),
    () => group.prepareRecv(one, 5),
    () => group.prepareReduce(one, 3),
  ];
  for (const prepare of invalid) assert.throws(prepare, pr.InvalidArgumentError, String(prepare));
  assert.throws(() => group.prepareScan(one, pr.ReduceOp.BAND), pr.UnsupportedDTypeError);
  assert.throws(() => group.prepareExscan("array"), pr.InvalidTypeError);
  assert.throws(() => group.prepareBarrier({ signal: 3 }), pr.InvalidTypeError);
  // None of these was an operation.
  const [work] = [group, other].map((known) => known.allreduce(new Float32Array(1)));
  await work;
  assert.equal(work.sequence, 1);
  await leave([group, other]);
});

test("what changes after it was prepared does not change an operation", async () => {
  for (const count of [1, 100_000]) {
    const groups = await join(2);
    const arrays = groups.map(() => new Int32Array(count));
    const options = { op: pr.ReduceOp.MAX };
    const prepared = groups.map((group, rank) => group.prepareAllreduce(arrays[rank], options));
    Object.assign(options, { op: pr.ReduceOp.SUM, unknown: 1 });
    const splits = { outputSplitSizes: [1, 1], inputSplitSizes: Int32Array.of(1, 1) };
    const outputs = groups.map(() => new Int32Array(2));
    const exchanges = groups.map((group, rank) => {
      return group.prepareAlltoall(outputs[rank], Int32Array.of(2 * rank, 2 * rank + 1), splits);
    });
    splits.outputSplitSizes.splice(0, 2, 2, 0);
    splits.inputSplitSizes.fill(0);
    const given = [[new Int32Array(1), new Int32Array(1)], []];
    const lists = given.map((list) => [...list]);
    const gathers = groups.map((group, rank) => {
      return group.prepareGather(given[rank], Int32Array.of(rank + 5), 0);
    });
    given[0].length = 0;
    // With a hook, each start is the ordinary call.
    for (const hook of [false, true]) {
      if (hook) groups.forEach((group) => group.registerPreHook(1, () => {}));
      arrays.forEach((array, rank) => array.fill(rank + 1));
      await Promise.all(prepared.map((operation) => operation.run()));
      arrays.forEach((array) => assert.ok(array.every((element) => element === 2)));
      await Promise.all(exchanges.map((operation) => operation.run()));
      assert.deepEqual(outputs.map((output) => [...output]), [[0, 2], [1, 3]]);
      const values = await Promise.all(gathers.map((operation) => operation.start()));
      assert.deepEqual(lists[0].map((array) => [...array]), [[5], [6]]);
      values.forEach((value, rank) => assert.equal(value, given[rank]));
    }
    await leave(groups);
  }
});

test("an array that was given away is found by the start", async () => {
  const [group] = await join(1);
  const array = new Float32Array(4);
  const prepared = group.prepareAllreduce(array);
  await prepared.run();
  structuredClone(array.buffer, { transfer: [array.buffer] });
  assert.throws(() => prepared.start(), pr.InvalidArgumentError);
  await assert.rejects(prepared.run(), pr.InvalidArgumentError);
  await leave([group]);
});

test("hooks and names see the ordinary operation", async () => {
  const [group] = await join(1);
  const array = new Float32Array(1);
  const prepared = group.prepareBroadcast(array, 0);
  await prepared.run();
  const seen = [];
  group.registerPreHook(1, (args) => seen.push([args.name, args.root, args.commName]));
  await pr.recordComm("layer", () => prepared.run());
  await prepared.start();
  group.unregisterPreHook(1);
  const named = pr.recordComm("other", () => prepared.start());
  await named;
  assert.deepEqual(seen, [["BROADCAST", 0, "layer"], ["BROADCAST", 0, null]]);
  assert.match(String(named), /broadcast 'other'/);
  await leave([group]);
});

test("a start behind another returns immediately, and messages come in order", async () => {
  const [one, two] = await join(2);
  const [taken, given] = [new Float64Array(1), new Float64Array(1)];
  const receive = one.prepareRecv(taken, 1, { tag: 7 });
  const send = two.prepareSend(given, 0, { tag: 7 });
  const works = [receive.start(), receive.start()];
  assert.deepEqual(works.map((work) => work.isCompleted()), [false, false]);
  for (const [round, work] of works.entries()) {
    given[0] = 5 + round;
    await send.run();
    await work;
    assert.equal(taken[0], 5 + round);
  }
  assert.equal(await receive.wait(), taken);
  await leave([one, two]);
});

for (const size of [1, 2, 3, 5]) {
  test(`collectives of ${size} ranks that are not awaited follow one another`, async () => {
    const groups = await join(size);
    for (const count of [1, 100_000]) {
      const arrays = groups.map((_, rank) => new Float64Array(count).fill(rank === 0 ? 1 : 0));
      const other = groups.map(() => new Float64Array(1));
      const prepared = groups.map((group, rank) => ({
        sum: group.prepareAllreduce(arrays[rank]),
        barrier: group.prepareBarrier(),
        tell: group.prepareBroadcast(other[rank], size - 1),
      }));
      const takeAll = (rank) => {
        const { sum, barrier, tell } = prepared[rank];
        other[rank][0] = 10 + rank;
        const given = [];
        for (let round = 0; round < 4; round += 1) {
          // Ranks that start, run and make ordinary calls meet all the same.
          const call = () => groups[rank].allreduce(arrays[rank]);
          const ways = [() => sum.start(), () => sum.run(), call];
          given.push(ways[(rank + round) % 3](), barrier.run(), tell.run(), barrier.start());
        }
        return Promise.all(given);
      };
      await Promise.all(groups.map((_, rank) => takeAll(rank)));
      for (const rank of groups.keys()) {
        assert.ok(arrays[rank].every((element) => element === size ** 3), `${arrays[rank][0]}`);
        assert.deepEqual([...other[rank]], [10 + size - 1]);
        assert.equal(await prepared[rank].sum.wait(), arrays[rank]);
      }
    }
    await leave(groups);
  });
}

for (const size of [2, 3, 5]) {
  test(`starts of ${size} processes that are not awaited follow one another`, async () => {
    const total = (size * (size - 1)) / 2;
    for (const sums of await onRanks(size, SCENARIOS, "withoutAwaiting")) {
      assert.deepEqual(sums, new Array(50).fill(total * size ** 3));
    }
  });
}

test("a start that waits for an earlier one is issued when that one is over", async () => {
  const [one, two] = await join(2);
  for (const count of [1, 100_000]) {
    const arrays = [new Float64Array(count).fill(1), new Float64Array(count).fill(1)];
    const [mine, theirs] = [one, two].map((group, rank) => group.prepareAllreduce(arrays[rank]));
    // The other rank has not started it yet.
    const works = [mine.start(), mine.start()];
    const run = mine.run();
    assert.deepEqual(works.map((work) => work.isCompleted()), [false, false]);
    await theirs.run();
    await theirs.start();
    await Promise.all([theirs.run(), run, ...works]);
    assert.ok(arrays.every((array) => array.every((element) => element === 8)));
    assert.equal(works[1].sequence, works[0].sequence + 1);
  }
  await leave([one, two]);
});

test("sends do not wait for a second start of a receive", async () => {
  const groups = await join(2);
  const exchange = async (group, rank) => {
    const [taken, given] = [new Float64Array(3), new Float64Array(3).fill(rank + 1)];
    const receive = group.prepareRecv(taken, 1 - rank, { tag: 7 });
    const send = group.prepareSend(given, 1 - rank, { tag: 7 });
    const works = [receive.start(), receive.start()];
    // Neither rank's first message has come: nothing was sent yet.
    works.push(send.start(), send.start());
    await Promise.all(works);
    return [...taken];
  };
  const came = await Promise.all(groups.map(exchange));
  assert.deepEqual(came, [[2, 2, 2], [1, 1, 1]]);
  const ordinary = async (group, rank) => {
    const taken = new Float64Array(3);
    const given = new Float64Array(3).fill(rank + 1);
    const works = [group.recv([taken], 1 - rank), group.recv([taken], 1 - rank)];
    works.push(group.send([given], 1 - rank), group.send([given], 1 - rank));
    await Promise.all(works);
    return [...taken];
  };
  assert.deepEqual(await Promise.all(groups.map(ordinary)), came);
  await leave(groups);
});

test("a prepared operation ends with its group, and may be aborted", async () => {
  const [group] = await join(1);
  const array = new Float32Array(1);
  const controller = new AbortController();
  const aborted = group.prepareAllreduce(array, { signal: controller.signal });
  await aborted.run();
  controller.abort(new Error("enough"));
  await assert.rejects(aborted.run(), /enough/);
  const ending = [group.prepareAllreduce(array), group.prepareBarrier()];
  for (const prepared of ending) await prepared.run();
  await group.shutdown();
  for (const prepared of ending) {
    await assert.rejects(prepared.run(), pr.PolyrankError);
    await assert.rejects(async () => prepared.start(), pr.PolyrankError);
  }
  assert.throws(() => group.prepareBarrier(), pr.InvalidGroupError);
});
