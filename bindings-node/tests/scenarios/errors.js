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
    noTensor: thrown(() => group.allreduce("x")),
    nothing: thrown(() => group.allreduce()),
    unknownOption: frozen,
    wrongOption: thrown(() => group.allreduce([x], { reduceOp: "sum" })),
    root: thrown(() => group.broadcast(x, 7)),
    negative: thrown(() => group.broadcast(x, -1)),
    timeout: thrown(() => group.allreduce(x, { timeout: -5 })),
    dtype: thrown(() => group.allreduce(x, { op: pr.ReduceOp.BAND })),
    premul: thrown(() => group.allreduce(x, { op: pr.ReduceOp.PREMUL_SUM })),
    shared: thrown(() => group.allgather([x, x], Float32Array.of(1))),
    peer: thrown(() => group.send([x], 0)),
    unbuilt: thrown(() => group.getReconfigureHandle()),
    uninitialized: thrown(() => pr.getRank()),
    key: thrown(() => new pr.HashStore().set(5, "x")),
    store: thrown(() => new pr.PrefixStore("x", {})),
  };
}

/** Ranks that disagree. */
export async function mismatch({ group, rank }) {
  return failure(() => group.allreduce(new Float32Array(rank + 1)));
}

/** Rank 1 dies while the others wait for it. */
export async function death({ group, rank }) {
  await group.barrier();
  if (rank === 1) process.kill(process.pid, "SIGKILL");
  const first = await failure(() => group.allreduce(Float32Array.of(1)));
  const later = await failure(() => group.allreduce(Float32Array.of(1)));
  return { first, later, staysOpen: true };
}

/** Nobody asks how it ended: no process may end because of that. */
export async function unasked({ group, rank }) {
  await group.barrier();
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
