// Groups that ranks make at the same time, each rank in an order of its own. Knows not where the
// ranks run.

/**
 * Makes several groups out of `group` at once, `repetitions` times, as one of its ranks: with and
 * without names, of all ranks and of some. All ranks give the same `seed`. Throws if one of them
 * has other members than those that were asked for; gives how many this rank was in.
 */
export async function makeInAnyOrder(pr, group, { repetitions, seed }) {
  const [rank, size] = [group.rank(), group.size()];
  const [common, own] = [numbers(seed), numbers(seed + 1 + rank)];
  const all = [...Array(size).keys()];
  let count = 0;
  for (let repetition = 0; repetition < repetitions; repetition += 1) {
    const members = shuffled(all, common).slice(0, 1 + (common() % size));
    const name = (which) => ({ pgOptions: { groupName: `${which} ${repetition}` } });
    const wanted = [
      { ranks: all, make: () => pr.newGroup() },
      { ranks: [...all].reverse(), make: (ranks) => group.splitGroup(ranks) },
      { ranks: all, make: (ranks) => pr.newGroup(ranks, name("all")) },
      { ranks: members, make: (ranks) => pr.splitGroup(group, [ranks], name("some")) },
    ];
    const order = [wanted, [...wanted].reverse()][rank] ?? shuffled(wanted, own);
    const sums = order.map(async ({ ranks, make }) => {
      const made = await make(ranks);
      const isIn = made !== null && made !== pr.NON_GROUP_MEMBER;
      if (isIn !== ranks.includes(rank)) throw new Error(`seed ${seed}: ${made}, of ${ranks}`);
      if (!isIn) return;
      count += 1;
      const sum = Int32Array.of(2 ** rank);
      await made.allreduce(sum);
      const expected = ranks.reduce((total, member) => total + 2 ** member, 0);
      if (`${made.ranks()}` !== `${ranks}` || sum[0] !== expected) {
        throw new Error(`seed ${seed}: a group of ${made.ranks()} has ${sum}, of ${ranks}`);
      }
      await pr.destroyProcessGroup(made);
    });
    await Promise.all(sums);
  }
  return count;
}

/** Numbers that follow from a seed: a linear congruential generator. */
function numbers(seed) {
  let state = BigInt(seed);
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) % 2n ** 64n;
    return Number(state >> 33n);
  };
}

/** The items in an order that `next` decides. */
function shuffled(items, next) {
  const left = [...items];
  return items.map(() => left.splice(next() % left.length, 1)[0]);
}
