// A JavaScript rank of a group whose members change, step by step, in Node or in a browser alike.
// What the steps are is written in run.py.

/** The members of each step, as sets that do not meet: most steps have one. */
function steps(size) {
  const everyone = Array.from({ length: size }, (_, rank) => rank);
  const [first, ...others] = everyone;
  const every = (remainder) => everyone.filter((rank) => rank % 2 === remainder);
  return [
    [everyone],
    [size > 1 ? others : everyone],
    [[...everyone].reverse()],
    size > 1 ? [every(0), every(1)] : [everyone],
    [[...others, first]],
  ];
}

/** Makes all steps, and checks the sum of what the members have. */
export async function main(pr, here) {
  await pr.initProcessGroup({ ...here.init, timeout: 60_000 });
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const store = pr.defaultGroup().getGroupStore();
  const group = await pr.newGroup({ enableReconfigure: true });
  if (!group.supportsReconfigure) throw new Error("the group cannot be reconfigured");
  const reduced = Promise.resolve().then(() => group.allreduce(new Float64Array(1)));
  const refused = await reduced.catch((error) => error);
  if (!(refused instanceof pr.NoMembersError)) throw new Error(`it reduced: ${refused}`);
  let done = 0;
  for (const [uuid, sides] of steps(size).entries()) {
    await store.set(`handle/${uuid}/${rank}`, group.getReconfigureHandle());
    for (const members of sides) {
      if (!members.includes(rank)) continue;
      const found = members.map((one) => store.get(`handle/${uuid}/${one}`));
      const handles = (await Promise.all(found)).map((bytes) => new TextDecoder().decode(bytes));
      await group.reconfigure({ uuid, handles, timeout: 60_000 });
      await check(group, members, rank);
      done += 1;
    }
  }
  for (const [quorum, sides] of steps(size).entries()) {
    for (const [side, members] of sides.entries()) {
      if (!members.includes(rank)) continue;
      const place = [members.indexOf(rank), members.length];
      const prefix = `${addressOf(here.init.initMethod)}/quorum/${quorum}/${side}`;
      if (quorum % 2 === 1) await group.configure(prefix, ...place);
      else await group.configure(prefix, `replica ${rank}`, ...place, quorum, 0, 1, members);
      await check(group, members, rank);
      done += 1;
    }
  }
  here.say(`${here.language} rank ${rank} of ${size}: ${done} steps`);
  await pr.barrier();
  await pr.destroyProcessGroup();
  return 0;
}

/** Where the ranks meet: over a WebSocket, where there are no sockets. */
function addressOf(url) {
  const { MASTER_ADDR, MASTER_PORT } = globalThis.process?.env ?? {};
  return url === "env://" ? `${MASTER_ADDR}:${MASTER_PORT}` : `ws://${new URL(url).host}`;
}

/** Reduces numbers of the ranks, short and long. */
async function check(group, members, rank) {
  if (group.rank() !== members.indexOf(rank) || group.size() !== members.length) {
    throw new Error(`rank ${group.rank()} of ${group.size()} instead of ${members}`);
  }
  const sum = members.reduce((all, one) => all + one, 0);
  for (const elements of [1, 50_000]) {
    const tensor = new Float64Array(elements).fill(rank);
    await group.allreduce(tensor);
    if (!tensor.every((value) => value === sum)) throw new Error(`${tensor[0]}, not ${sum}`);
  }
}
