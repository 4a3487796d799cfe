// Ranks of a test in this very process, which meet in a store of it. Knows no test.

import * as pr from "polyrank";

/** Runs a function on each of `size` ranks, given its group and its rank, until all have left. */
export async function inGroups(size, run) {
  const store = new pr.HashStore();
  const ranks = Array.from({ length: size }, async (_, rank) => {
    const group = await pr.ProcessGroup.join(store, rank, size);
    await run(group, rank);
    await group.shutdown();
  });
  await Promise.all(ranks);
}
