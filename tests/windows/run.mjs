// A JavaScript rank that reads and writes memory of ranks of any language, in Node or in a browser.
//
// run.py is the same in Python, examples/windows.rs in Rust; expected values come from arithmetic.

const ELEMENTS = [67, 40_003];
const ROUNDS = 100;

/** What a rank registers. */
function ownValues(rank, elements) {
  return BigInt64Array.from({ length: elements }, (_, index) => BigInt(index + rank * 1_000_000));
}

function check(isRight, what) {
  if (!isRight) throw new Error(what);
}

/** Whether a call fails with this kind of error. */
async function refused(kind, call) {
  try {
    await call();
  } catch (error) {
    return error.kind === kind;
  }
  return false;
}

/** What each rank gets, puts and signals. */
async function exchange(group, window, memory) {
  const [rank, size, elements] = [group.rank(), group.size(), memory.data.length];
  for (let peer = 0; peer < size; peer += 1) {
    const got = await window.get(new BigInt64Array(elements), peer, 0);
    const expected = ownValues(peer, elements);
    check(got.every((value, index) => value === expected[index]), `got from ${peer}`);
    const part = await window.get(new BigInt64Array(5), peer, 3);
    check(part.every((value, index) => value === expected[index + 3]), `a part from ${peer}`);
  }
  await window.fence();
  const [following, before] = [(rank + 1) % size, (rank + size - 1) % size];
  await window.put(BigInt64Array.of(BigInt(-1 - rank)), following, 7);
  await window.signal(following);
  await window.waitSignal(before);
  check(memory.data[7] === BigInt(-1 - before), `element 7 is ${memory.data[7]}`);
  for (let value = 1n; value <= BigInt(ROUNDS); value += 1n) {
    // The calls of a window come one after the other, though nobody waits for them.
    window.put(BigInt64Array.of(value), following, 8);
    window.signal(following);
    await window.waitSignal(before);
    check(memory.data[8] === value, `round ${value}: ${memory.data[8]}`);
    await window.signal(before, { timeout: 60_000 });
    await window.waitSignal(following, { timeout: 60_000 });
  }
  // All were taken; that no other comes ends the call, and nothing else.
  const late = () => window.waitSignal(before, { timeout: 10 });
  check(await refused('CollectiveTimeout', late), 'a signal that nobody sent');
  await window.flush();
  await window.fence();
}

/** What all ranks change at once. */
async function update(pr, group, window, memory) {
  const [rank, size, last] = [group.rank(), group.size(), memory.data.length - 1];
  if (rank === 0) memory.data.fill(0n, 20, 24);
  await window.fence();
  let highest = -1n;
  for (let index = 0; index < ROUNDS; index += 1) {
    const [old] = await window.fetchAndAdd(BigInt64Array.of(1n), new BigInt64Array(1), 0, 20);
    check(old > highest, `${old} was there after ${highest}`);
    highest = old;
  }
  await window.accumulate(BigInt64Array.of(BigInt(rank)), 0, 21, pr.ReduceOp.MAX);
  const [own, zero] = [BigInt64Array.of(BigInt(rank + 1)), BigInt64Array.of(0n)];
  const [won] = await window.compareAndSwap(own, zero, BigInt64Array.of(-1n), 0, 22);
  await window.accumulate(BigInt64Array.of(won === 0n ? 1n : 0n), 0, 23);
  await window.fence();
  if (rank === 0) {
    const [total, highestRank, winner, winners] = memory.data.slice(20, 24);
    check(total === BigInt(ROUNDS * size), `${total} additions`);
    check(highestRank === BigInt(size - 1), `the maximum is ${highestRank}`);
    check(winner >= 1n && winner <= BigInt(size) && winners === 1n, `${winner}, ${winners}`);
  }
  const outside = () => window.put(new BigInt64Array(2), 0, last);
  check(await refused("InvalidArgument", outside), "outside");
  const other = () => window.put(new Float64Array(2), 0, 0);
  check(await refused("InvalidArgument", other), "another dtype");
  check(await refused("InvalidArgument", () => window.signal(size)), "no such rank");
}

/** Whether each call of a window is refused whose group was destroyed. */
async function checkDestroyed(pr, window, peer) {
  const numbers = new BigInt64Array(1);
  const calls = [
    () => window.put(numbers, peer, 0),
    () => window.get(numbers, peer, 0),
    () => window.accumulate(numbers, peer, 0),
    () => window.fetchAndAdd(numbers, new BigInt64Array(1), peer, 0),
    () => window.signal(peer),
    () => window.waitSignal(peer),
    () => window.flush(peer),
    () => window.flush(),
    () => window.fence(),
    () => window.getAttr(peer),
    () => window.tensorDeregister(),
    () => window.tensorRegister(pr.alloc("i64", [3])),
  ];
  for (const call of calls) check(await refused("InvalidGroup", call), `destroyed: ${call}`);
}

/** Runs all; fails if something was not as it should be. */
export async function main(pr, here) {
  await pr.initProcessGroup({ ...here.init, timeout: 60_000 });
  const group = pr.currentProcessGroup();
  const [rank, size] = [group.rank(), group.size()];
  check(group.supportsWindow, "there are windows");
  check(!group.usePgForSymmMemRendezvous, "nobody has set it");
  group.usePgForSymmMemRendezvous = true;
  check(group.usePgForSymmMemRendezvous, "it is kept");
  for (const elements of ELEMENTS) {
    const memory = pr.alloc("i64", [elements]);
    memory.data.set(ownValues(rank, elements));
    const window = await group.newWindow(memory);
    check(window.getAttr(rank) === "UNIFIED", "its own memory");
    await exchange(group, window, memory);
    await update(pr, group, window, memory);
    if (here.language === "Node") {
      window.mapRemoteTensor(rank).data[9] = 99n;
      check(memory.data[9] === 99n, "what is mapped is the same memory");
    }
    const foreign = () => window.tensorRegister(new BigInt64Array(5));
    check(await refused("InvalidArgument", foreign), "memory that can move");
    // What a rank may not do now is refused, and nothing else comes of it: the rest goes on.
    const second = () => window.tensorRegister(pr.alloc("i64", [5]));
    check(await refused("InvalidArgument", second), "a second tensor");
    await window.tensorDeregister();
    const again = () => window.tensorDeregister();
    check(await refused("InvalidArgument", again), "closed already");
    const closed = () => window.put(new BigInt64Array(1), 0, 0);
    check(await refused("InvalidArgument", closed), "closed");
  }
  const unfit = rank === 0 ? new BigInt64Array(5) : pr.alloc("i64", [5]);
  const made = () => group.newWindow(unfit);
  check(await refused("InvalidArgument", made), "rank 0 gives what cannot be registered");
  const windows = [];
  for (const elements of ELEMENTS) windows.push(await group.newWindow(pr.alloc("i64", [elements])));
  await pr.destroyProcessGroup();
  for (const window of windows) await checkDestroyed(pr, window, (rank + 1) % size);
  here.say(`${here.language} rank ${rank} of ${size}: windows passed`);
  return 0;
}
