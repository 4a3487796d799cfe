// What each rank does in the tests of looking for messages.

import assert from "node:assert/strict";

import * as pr from "polyrank";

/** Each looks for what the other sends meanwhile. */
export async function exchanged({ rank, group }) {
  const other = 1 - rank;
  const [found] = await Promise.all([
    group.probe(other, 5),
    group.send([Float32Array.of(rank, rank)], other, 5),
  ]);
  const got = new Float32Array(2);
  await group.recv([got], other, 5);
  const complex = pr.tensor(new Float32Array(4), { dtype: pr.DType.complex64 });
  const [of] = await Promise.all([group.probe(other, 6), group.send([complex], other, 6)]);
  assert.deepEqual([of.dtype, of.bytes], [pr.DType.complex64, 16]);
  await group.recv([complex], other, 6);
  const sum = Int32Array.of(1);
  await group.allreduce(sum);
  const { source, tag, dtype, bytes } = found;
  return { found: [source, tag, dtype, bytes], got: [...got], sum: sum[0] };
}

/** Nothing comes. Who waits to the limit knows that a wait that began before would have, too. */
export async function givenUp({ rank, size, store }) {
  const group = await pr.ProcessGroup.join(store, rank, size, { groupName: "given up" });
  group.setTimeout(300);
  const reason = new Error("enough");
  const end = new AbortController();
  const first = group.probe(1 - rank, 7, { signal: end.signal });
  end.abort(reason);
  await assert.rejects(first, (error) => error === reason);
  await assert.rejects(group.probe(null, 8, { signal: end.signal }), (error) => error === reason);
  const { signal } = new AbortController();
  await assert.rejects(group.probe(1 - rank, 7, { signal }), (error) => {
    assert.ok(error instanceof pr.CollectiveTimeoutError, String(error));
    const { collective, rank: who, missingRanks, waitingRank, waitedMs } = error;
    assert.deepEqual([collective, who, missingRanks], ["probe", 1 - rank, [1 - rank]]);
    assert.deepEqual([waitingRank, waitedMs >= 300], [rank, true]);
    assert.match(error.message, /^probe .* after \d+ ms: waiting for rank ., with tag 7$/);
    return true;
  });
  assert.throws(() => group.probe("x", { signal }), { message: /^probe\(\) does not take/ });
  group.setTimeout(60_000);
  const sum = Int32Array.of(1);
  await group.allreduce(sum);
  assert.equal(sum[0], size);
  await group.shutdown();
  return "whole";
}

/** Rank 1 waits before rank 0 sends. */
export async function foundLater({ rank, group }) {
  const { signal } = new AbortController();
  const found = rank === 1 ? group.probe({ srcRank: 0, tag: 2, signal }) : null;
  await group.barrier();
  await group.barrier();
  if (rank === 0) await group.send([Uint8Array.of(1, 2, 3, 4)], 1, 2);
  const bytes = found === null ? 0 : (await found).bytes;
  if (rank === 1) await group.recv([new Uint8Array(4)], 0, 2);
  return bytes;
}

/** Rank 1 waits for a message of rank 0, which has called something else before it. */
export async function messagesPass({ rank, group, argument }) {
  const calls = {
    allreduceSparse: () => group.allreduceSparse(BigInt64Array.of(0n), Float32Array.of(1)),
    allGatherObject: () => pr.allGatherObject([null, null], rank, { group }),
    splitGroup: () => group.splitGroup([0, 1]),
    monitoredBarrier: () => group.monitoredBarrier(),
  };
  const [value, sum] = [Int32Array.of(rank === 0 ? 7 : 0), Int32Array.of(1)];
  if (rank === 1) await group.recv([value], 0);
  const others = [calls[argument](), group.allreduce(sum)];
  if (rank === 0) await group.send([value], 1);
  await Promise.all(others);
  assert.equal(sum[0], 2);
  return value[0];
}
