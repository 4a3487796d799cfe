// What the ranks of `survivors.test.js` do.

import * as pr from "polyrank";

/** The error of a call, as a record. */
async function failure(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return { class: error.constructor.name, rank: error.rank, message: error.message };
  }
}

/** How long a rank waits that should not have to. */
const LIMIT_MS = 60_000;

/** The group breaks, its last rank is killed after that, and the others go on without it. */
export async function killed({ group, rank, size, store }) {
  const victim = size - 1;
  const before = group.getError();
  if (rank === 0) group.revoke();
  const broken = await failure(() => group.barrier());
  const after = group.getError();
  // Nobody is killed while another has still to hear of the first failure.
  await store.barrier("broken", size);
  if (rank === victim) process.kill(process.pid, "SIGKILL");
  const agreed = await group.agree(0b110 + rank, { timeout: LIMIT_MS });
  const needed = await failure(() => group.shrinkGroup([], { timeout: LIMIT_MS }));
  await group.shrinkGroup([victim], { timeout: LIMIT_MS });
  const sum = Float64Array.of(rank);
  await group.allreduce(sum);
  const again = await group.agree(5, { timeout: LIMIT_MS });
  const place = [group.rank(), group.size()];
  return { before, broken, after, agreed, needed, sum: sum[0], again, place };
}

/** Ranks that live all the same agree, and leave one of them out. */
export async function excluded({ group, rank, size }) {
  const agreed = await group.agree(rank === 0 ? 0b101 : 0b111, { timeout: LIMIT_MS });
  const wrong = await failure(() => group.shrinkGroup([rank]));
  if (rank === size - 1) return { agreed, wrong };
  const work = group.shrinkGroup([size - 1]);
  await work;
  const sum = Float64Array.of(rank);
  await group.allreduce(sum);
  return { agreed, wrong, sum: sum[0], done: work.isSuccess() };
}

/** Members that were prepared for are not those that come. */
export async function prepared({ group, rank, size, store }) {
  const operation = group.prepareAllreduce(Float32Array.of(1));
  await operation.run?.();
  await store.set(`handle/${rank}`, group.getReconfigureHandle());
  const handles = [];
  for (let one = 0; one < size; one += 1) {
    handles.push(new TextDecoder().decode(await store.get(`handle/${one}`)));
  }
  await group.reconfigure({ uuid: 1, handles });
  return failure(() => operation.start());
}
