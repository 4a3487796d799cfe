// A JavaScript rank of groups that stand alone, in Node or in a browser alike. What it does is
// written in run.py.

const MINUTE = 60_000;

/** Joins groups, leaves them, joins them again, and is refused. */
export async function main(pr, here) {
  const { init } = here;
  const weights = await pr.joinGroup("weights", { ...init, version: "7" });
  const [rank, size] = [weights.rank(), weights.size()];
  const views = await pr.joinGroup("views", { ...init, timeout: MINUTE });
  if (pr.isInitialized() || weights.groupName !== "weights") throw new Error(weights.groupName);
  for (const group of [weights, views]) await check(group, rank, size);
  const twice = await pr.joinGroup("weights", init).catch((error) => error);
  if (!(twice instanceof pr.DuplicateGroupError)) throw new Error(`it joined twice: ${twice}`);
  await pr.destroyProcessGroup(weights);
  // The name is free again, and so is who is which rank.
  const [store, other] = [views.getGroupStore(), size - 1 - rank];
  const place = { store, rank: other, worldSize: size, timeout: MINUTE };
  await check(await pr.joinGroup("weights", { ...place, version: "8" }), other, size);
  if (size > 1) await compareVersions(pr, { rank, size, init });
  here.say(`${here.language} rank ${rank} of ${size}: joined`);
  // Without a group's name, all of them are left.
  if (pr.getPgCount() !== 2) throw new Error(`${pr.getPgCount()} groups, not 2`);
  await pr.destroyProcessGroup();
  if (pr.getPgCount() !== 0) throw new Error(`${pr.getPgCount()} groups, not 0`);
  const none = await pr.destroyProcessGroup().catch((error) => error);
  if (!(none instanceof pr.NotInitializedError)) throw new Error(`there was another: ${none}`);
  return 0;
}

/** Reduces numbers of the ranks. */
async function check(group, rank, size) {
  if (group.rank() !== rank || group.size() !== size) {
    throw new Error(`rank ${group.rank()} of ${group.size()}, not ${rank} of ${size}`);
  }
  const tensor = new Float64Array(70_001).fill(rank);
  await group.allreduce(tensor);
  const sum = (size * (size - 1)) / 2;
  if (!tensor.every((value) => value === sum)) throw new Error(`${tensor[0]}, not ${sum}`);
}

/** The last rank comes with a version that nobody else has, until it is told so. */
async function compareVersions(pr, { rank, size, init }) {
  const join = (version, timeout) => {
    const joined = pr.joinGroup("strict", { ...init, version, timeout });
    return joined.catch((error) => error);
  };
  const isLast = rank === size - 1;
  let refused = !isLast;
  while (!refused) {
    const error = await join("2", 1000);
    // Nobody else may be there yet.
    if (error instanceof pr.RendezvousTimeoutError) continue;
    const parts = ["'strict'", "version '2'", "version '1'"];
    const says = (part) => error.message.includes(part);
    refused = error instanceof pr.RendezvousError && parts.every(says);
    if (!refused) throw new Error(`it was not refused: ${error}`);
  }
  let group = await join("1", MINUTE);
  while (group instanceof pr.RendezvousError && !isLast) group = await join("1", MINUTE);
  await check(group, rank, size);
  await pr.destroyProcessGroup(group);
}
