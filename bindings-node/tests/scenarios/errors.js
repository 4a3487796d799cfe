// What each rank does in the tests of errors.

const shown = (error) => ({
  class: error.constructor.name,
  base: error.constructor.prototype instanceof Error,
  name: error.name,
  kind: error.kind,
  message: error.message,
  rank: error.rank,
  collective: error.collective,
  seq: error.seq,
  missingRanks: error.missingRanks,
  waitingRank: error.waitingRank,
  from: error.from,
  to: error.to,
  tag: error.tag,
  sentDtype: error.sentDtype,
  bufferDtype: error.bufferDtype,
  backend: error.backend,
  known: error.known,
  groupName: error.groupName,
});

async function failure(run) {
  try {
    await run();
  } catch (error) {
    return shown(error);
  }
  return null;
}

function thrown(run) {
  try {
    run();
  } catch (error) {
    return shown(error);
  }
  return null;
}

/** Wrong arguments, which throw where they are given. */
export async function wrongArguments({ pr, group }) {
  const x = Float32Array.of(1);
  const frozen = thrown(() => group.allreduce(x, { nonsense: 1 }));
  return {
    form: thrown(() => group.allreduce("x")),
    noTensor: thrown(() => group.allreduce("x")),
    nothing: thrown(() => group.allreduce()),
    unknownOption: frozen,
    wrongOption: thrown(() => group.allreduce([x], { reduceOp: "sum" })),
    root: thrown(() => group.broadcast(x, 7)),
    negative: thrown(() => group.broadcast(x, -1)),
    timeout: thrown(() => group.allreduce(x, { timeout: -5 })),
    endless: thrown(() => group.allreduce(x, { timeout: NaN })),
    fraction: thrown(() => pr.broadcast(x, { src: 0.5 })),
    dtype: thrown(() => group.allreduce(x, { op: pr.ReduceOp.BAND })),
    premul: thrown(() => group.allreduce(x, { op: pr.ReduceOp.PREMUL_SUM })),
    shared: thrown(() => group.allgather([x, x], Float32Array.of(1))),
    peer: thrown(() => group.send([x], 1)),
    uninitialized: thrown(() => pr.getRank()),
    key: thrown(() => new pr.HashStore().set(5, "x")),
    store: thrown(() => new pr.PrefixStore("x", {})),
    numbers: thrown(() => group.allreduce(7)),
    method: thrown(() => group.allGatherSingleCoalesced([x], [Float32Array.of(1, 2)])),
    handle: thrown(() => pr.barrier({ asyncOp: "yes" })),
    size: await failure(() => pr.ProcessGroup.join(new pr.HashStore(), 0, 0)),
  };
}

/** What names no backend, or a group that there is already. */
export async function names({ pr, store }) {
  const known = await failure(() => pr.ProcessGroup.join(store, 0, 1, { backend: "nope" }));
  const options = { store, rank: 0, worldSize: 1 };
  const first = await failure(() => pr.initProcessGroup({ ...options, backend: "nope" }));
  await pr.initProcessGroup(options);
  const group = await failure(() => pr.newGroup([0], { backend: "nope" }));
  await pr.newGroup([0], { groupName: "mine" });
  const twice = await failure(() => pr.newGroup([0], { groupName: "mine" }));
  const again = await failure(() => pr.initProcessGroup(options));
  const parsed = thrown(() => pr.parseBackend("nope"));
  const all = known.known.split(", ").map((name) => pr.parseBackend(name));
  await pr.destroyProcessGroup();
  return { refused: [known, first, group, parsed], twice, again, all };
}

/** Ranks that disagree. */
export async function mismatch({ group, rank }) {
  return failure(() => group.allreduce(new Float32Array(rank + 1)));
}

/** Rank 1 dies while the others wait for it. */
export async function death({ group, rank, size, store }) {
  await group.barrier();
  // Who still is in an operation with a rank that is killed hears of that.
  await store.barrier("through", size);
  if (rank === 1) process.kill(process.pid, "SIGKILL");
  const first = await failure(() => group.allreduce(Float32Array.of(1)));
  const later = await failure(() => group.allreduce(Float32Array.of(1)));
  return { first, later, staysOpen: true };
}

/** Nobody asks how it ended: no process may end because of that. */
export async function unasked({ group, rank, size, store }) {
  await group.barrier();
  await store.barrier("through", size);
  if (rank === 1) process.kill(process.pid, "SIGKILL");
  const works = [1, 2, 3].map((value) => group.allreduce(Float32Array.of(value)));
  while (!works.every((work) => work.isCompleted())) await new Promise(setImmediate);
  return { kinds: works.map((work) => work.exception()?.kind), staysOpen: true };
}

/** Rank 1 comes late: the first wait ends before, the second one after it. */
export async function patience({ group, rank, store }) {
  const x = Float32Array.of(rank);
  if (rank === 1) {
    await store.get("come");
    await group.allreduce(x);
    return null;
  }
  const work = group.allreduce(x);
  const expired = await failure(() => work.wait({ timeout: 5 }));
  const before = [...x];
  await store.set("come", "1");
  await work.wait({ timeout: 50_000 });
  return { expired, before, after: [...x], sequence: work.sequence };
}

/** Rank 1 does not come at all. */
export async function deadline({ group, rank, store }) {
  if (rank === 1) {
    await store.get("over");
    return { staysOpen: true };
  }
  const error = await failure(() => group.allreduce(Float32Array.of(1), { timeout: 100 }));
  await store.set("over", "1");
  return { error, staysOpen: true };
}

/** A group in which nobody else comes. */
export async function alone({ pr }) {
  const store = new pr.HashStore();
  const options = { timeout: 300, groupName: "incomplete" };
  return failure(() => pr.ProcessGroup.join(store, 1, 4, options));
}

/** Doubles are sent, and a receiver of floats has a buffer of as many bytes. */
export async function messageTypes({ group, rank }) {
  const sent = Float64Array.of(1, 2);
  const into = new Float32Array(4);
  if (rank === 1) {
    const bytes = new Uint8Array(sent.byteLength);
    await group.recv([bytes], 0, 4);
    if (new Float64Array(bytes.buffer)[1] !== 2) throw new Error("other bytes came");
    return failure(() => group.recv([into], 0, 5));
  }
  await group.send([sent], 1, 4);
  // It has left before the receiver looks at it: the next call tells.
  return failure(async () => {
    await group.send([sent], 1, 5);
    await group.recv([sent], 1, 5);
  });
}

/** Each rank takes itself for the root. */
export async function differentRoots({ group, rank }) {
  const called = await failure(() => group.broadcast(Float32Array.of(rank), rank));
  const left = await failure(() => group.shutdown());
  return called ?? left;
}
