// What each rank does in the tests of prepared operations. Knows no expected values.

/** On each rank: small operations that are over when their calls return, and some that are not; a
 * rank starts, runs, or makes the ordinary call, in turns. */
export async function everyWay({ group, rank, size }) {
  const [one, all] = [new Float64Array(1), new Float64Array(size)];
  const given = new Int32Array(1);
  const taken = new Int32Array(1);
  const [next, before] = [(rank + 1) % size, (rank + size - 1) % size];
  const prepared = {
    sum: group.prepareAllreduce(one),
    tell: group.prepareBroadcast(one, size - 1),
    gather: group.prepareAllgather(all, one),
    barrier: group.prepareBarrier(),
    send: group.prepareSend(given, next),
    receive: group.prepareRecv(taken, before),
  };
  const ordinary = {
    sum: () => group.allreduce(one),
    tell: () => group.broadcast(one, size - 1),
    gather: () => group.allGatherSingle(all, one),
    barrier: () => group.barrier(),
  };
  const got = { sums: [], told: [], gathered: [], sent: [], sequences: [] };
  for (let round = 0; round < 6; round += 1) {
    const take = async (name) => {
      const way = (rank + round) % 3;
      if (way === 0) await prepared[name].start();
      else if (way === 1) await prepared[name].run();
      else await ordinary[name]();
    };
    one[0] = rank + round;
    await take("sum");
    got.sums.push(one[0]);
    one[0] = rank === size - 1 ? 7 + round : 0;
    await take("tell");
    got.told.push(one[0]);
    one[0] = rank * round;
    await take("gather");
    got.gathered.push([...all]);
    await take("barrier");
    given[0] = rank + round;
    const sent = prepared.send.start();
    await prepared.receive.run();
    await sent;
    got.sent.push(taken[0]);
  }
  const work = prepared.gather.start();
  await work;
  const last = await prepared.gather.wait();
  await prepared.tell.run();
  const after = prepared.gather.start();
  await after;
  const isRight = after.timeout === group.timeout && after.isSuccess();
  const summed = await prepared.sum.wait();
  got.values = [last === all, work.result()[0] === all, isRight, summed === one];
  got.sequences = [work.sequence, after.sequence];
  return got;
}

/** On each rank: starts of small operations, none of which waits for the one before. */
export async function withoutAwaiting({ group, rank }) {
  const one = new Float64Array(1);
  const sum = group.prepareAllreduce(one);
  const added = [];
  for (let round = 0; round < 50; round += 1) {
    one[0] = rank;
    const runs = [sum.run(), sum.run(), sum.start(), sum.run()];
    if (rank % 2 === 0) await runs[0];
    await Promise.all(runs);
    added.push(one[0]);
  }
  return added;
}
