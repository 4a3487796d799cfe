// What each rank does in the tests of how groups end.

/** The default group is aborted while the others wait in it; then all make another one. */
export async function abortedAndMadeAgain({ pr, store, rank, size }) {
  const found = { initialized: [], sums: [] };
  const make = async (round) => {
    const meeting = new pr.PrefixStore(`round ${round}`, store);
    await pr.initProcessGroup({ store: meeting, rank, worldSize: size, timeout: 60_000 });
    found.initialized.push(pr.isInitialized());
    const sum = Float64Array.of(round + 1);
    await pr.allReduce(sum);
    found.sums.push(sum[0]);
  };
  await make(0);
  const first = pr.defaultGroup();
  // Nobody aborts what another has not finished.
  await store.barrier("all have the first sum", size);
  if (rank > 0) {
    found.failure = await pr.allReduce(Float64Array.of(1)).then(String, (error) => error.kind);
  }
  if (rank === 0 && size > 1) found.failure = "Aborted";
  await pr.abortProcessGroup();
  found.initialized.push(pr.isInitialized());
  try {
    found.old = String(await first.barrier());
  } catch (error) {
    found.old = error.kind;
  }
  found.nothing = await pr.abortProcessGroup().then(String, (error) => error.kind);
  await make(1);
  await pr.destroyProcessGroup();
  found.initialized.push(pr.isInitialized());
  return found;
}
