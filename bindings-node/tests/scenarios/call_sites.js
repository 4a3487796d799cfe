// What ranks do that disagree, and say where they have called.

import * as pr from "polyrank";

/** What a call fails with. */
async function failure(call) {
  try {
    await call();
    return null;
  } catch (error) {
    const { kind, message, rank, ours, otherRank, theirs } = error;
    return { kind, message, rank, ours, otherRank, theirs };
  }
}

const ofFirst = (group, length) => group.allreduce(new Float32Array(length));

const ofLast = (group, length) => group.allreduce(new Float32Array(length + 1));

/** The last rank passes another length; `[level, length]` is given. */
export async function disagree({ store, rank, size, argument: [level, length] }) {
  pr.setDebugLevel(level);
  const group = await pr.ProcessGroup.join(store, rank, size, { groupName: "sites" });
  pr.setDebugLevel("OFF");
  const call = rank === size - 1 ? ofLast : ofFirst;
  const first = await failure(() => call(group, length));
  const later = await failure(() => group.barrier());
  await group.shutdown();
  return { first, later };
}
