// What each rank does in the tests of collectives. Knows no expected values.

/** On each rank: what every collective leaves in its outputs. */
export async function collectives({ pr, group, rank, size }) {
  const f32 = (...values) => Float32Array.from(values);
  const many = (make) => Array.from({ length: size }, (_, other) => make(other));
  const got = {};

  const a = f32(rank + 1, rank * 10);
  got.sameArray = (await group.allreduce(a)) === a;
  got.allreduce = a;
  const list = [f32(rank + 1)];
  const works = group.allreduce(list, { reduceOp: pr.ReduceOp.MAX });
  got.sameList = (await works) === list;
  got.allreduceOptions = list[0];
  const [x, y] = [f32(rank), f32(1)];
  await group.allreduceCoalesced([x, y]);
  got.coalesced = f32(...x, ...y);
  // Outputs come by rank, as in c10d: its list has an array for each input.
  const byRank = many(() => [f32(0, 0), Int32Array.of(0)]);
  await group.allgatherCoalesced(byRank, [f32(rank, -rank), Int32Array.of(10 * rank)]);
  got.allgatherCoalesced = byRank.map((list) => list.map((array) => [...array]));
  got.reduce = f32(rank);
  await group.reduce(got.reduce, size - 1);
  got.broadcast = rank === size - 1 ? f32(rank, 7) : f32(0, 0);
  await group.broadcast(got.broadcast, size - 1);
  const outputs = many(() => f32(0, 0));
  await group.allgather(outputs, f32(rank, rank * rank));
  got.allgather = outputs.map((output) => [...output]);
  got.allGatherSingle = new Float64Array(2 * size);
  await group.allGatherSingle(got.allGatherSingle, Float64Array.of(rank, -rank));
  const gathered = rank === 0 ? many(() => f32(9)) : [];
  await group.gather(gathered, f32(rank), 0);
  got.gather = gathered.map((output) => [...output]);
  got.scatter = f32(0);
  await group.scatter(got.scatter, rank === 0 ? many((other) => f32(100 + other)) : [], 0);
  got.reduceScatter = f32(0);
  await group.reduceScatter(got.reduceScatter, many((other) => f32(rank * 10 + other)));
  got.reduceScatterSingle = f32(0);
  const flat = f32(...many((other) => rank * 10 + other));
  await group.reduceScatterSingle(got.reduceScatterSingle, flat);
  const swapped = many(() => f32(0));
  await group.alltoall(swapped, many((other) => f32(rank * 10 + other)));
  got.alltoall = swapped.map((output) => [...output]);
  got.allToAllSingle = f32(...many(() => 0));
  await group.allToAllSingle(got.allToAllSingle, flat);
  Object.assign(got, await uneven(group, rank, size, many));
  got.scan = f32(rank + 1, 10 * rank);
  await group.scan(got.scan);
  got.exscan = Int16Array.of(rank + 5);
  await group.exscan(got.exscan, pr.ReduceOp.MAX);
  got.prepared = await again(pr, group, rank);
  const [after, before] = [(rank + 1) % size, (rank + size - 1) % size];
  got.exchanged = Int32Array.of(-1, -1);
  const tags = { sendTag: 2, recvTag: 2 };
  await group.sendrecv(Int32Array.of(rank, 7), after, got.exchanged, before, tags);
  const sent = group.send([new Float64Array(rank + 1)], after, 9);
  got.found = await group.probe(before, 9);
  await group.recv([new Float64Array(before + 1)], before, 9);
  await sent;
  got.notFound = await group.iprobe(before, 9);
  const shift = many((other) => [other, other + 1]).slice(0, -1);
  got.shifted = Float32Array.of(-1, -1);
  await group.ppermute(got.shifted, f32(rank + 1, 5), shift);
  got.permutedInPlace = Int32Array.of(rank + 1, 5);
  await group.ppermute(got.permutedInPlace, got.permutedInPlace, shift);
  got.inPlace = Float64Array.of(rank);
  await group.sendrecv(got.inPlace, before, got.inPlace, after);
  got.barrier = await group.barrier();
  if (size > 1) await ring(group, rank, size, got);
  return got;
}

/** Flat arrays in which rank `r` has `r` elements. */
async function uneven(group, rank, size, many) {
  const [rows, total] = [many((other) => other), (size * (size - 1)) / 2];
  const got = { allGatherV: new Int32Array(total), gatherV: new Int32Array(total) };
  const own = new Int32Array(rank).fill(rank);
  await group.allGatherV(got.allGatherV, own, rows);
  const last = size - 1;
  const isRoot = rank === last;
  await group.gatherV(isRoot ? got.gatherV : null, own, isRoot ? rows : null, last);
  got.scatterV = new Int32Array(rank);
  await group.scatterV(got.scatterV, isRoot ? got.gatherV : null, isRoot ? rows : null, last);
  got.reduceScatterV = new Int32Array(rank);
  await group.reduceScatterV(got.reduceScatterV, got.allGatherV, rows);
  got.allToAllV = new Int32Array(rank * size);
  await group.allToAllV(got.allToAllV, got.allGatherV, many(() => rank), rows);
  return got;
}

/** A prepared operation, started twice; every other rank takes part by an ordinary call. */
async function again(pr, group, rank) {
  const tensor = Float64Array.of(rank);
  const prepared = group.prepareAllreduce(tensor, pr.ReduceOp.MAX);
  const sums = [await prepared.wait()];
  for (const value of [rank, 10 * rank]) {
    tensor[0] = value;
    if (rank % 2 === 0) prepared.start();
    await (rank % 2 === 0 ? prepared.wait() : group.allreduce(tensor, pr.ReduceOp.MAX));
    sums.push(tensor[0]);
  }
  // Each start adds to what the last one left.
  const counted = Float64Array.of(1);
  const adding = group.prepareAllreduce(counted);
  for (let start = 0; start < 2; start++) {
    if (rank % 2 === 0) await adding.start();
    else await group.allreduce(counted);
  }
  sums.push(counted[0]);
  await (rank % 2 === 0 ? adding.run() : group.allreduce(counted));
  sums.push(counted[0]);
  return sums;
}

/** Sends its rank to the next one, and receives from any rank that sends. */
async function ring(group, rank, size, got) {
  const sent = group.send([Int32Array.of(rank)], (rank + 1) % size, { tag: 3 });
  got.received = new Int32Array(1);
  const work = group.recvAnysource([got.received], { tag: 3 });
  await Promise.all([sent, work]);
  got.sender = work.sourceRank();
}
