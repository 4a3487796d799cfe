// What each rank does in the tests of messages to itself. Knows no expected values.

/** On each rank: what comes of messages to itself, in both orders of the calls. */
export async function ownMessages({ pr, group, rank, size }) {
  const got = { values: [], senders: [] };
  for (const count of [0, 3, 400_000]) {
    for (const receivesFirst of [false, true]) {
      const into = new Float64Array(count);
      const send = () => group.send([new Float64Array(count).fill(rank + 0.5)], rank, 2);
      const receive = () => group.recv([into], rank, 2);
      const works = receivesFirst ? [receive(), send()].reverse() : [send(), receive()];
      await Promise.all(works);
      got.values.push(into.length, into.every((value) => value === rank + 0.5));
      got.senders.push(works[1].sourceRank());
    }
  }
  const into = new Int32Array(2);
  const batch = pr.batchIsendIrecv([
    new pr.P2POp(pr.irecv, into, null, { group, groupPeer: rank }),
    new pr.P2POp(pr.isend, Int32Array.of(rank, 7), null, { group, groupPeer: rank }),
  ]);
  await Promise.all(batch);
  got.batch = [...into];
  const outside = () => new pr.P2POp(pr.irecv, into, null, { group, groupPeer: size });
  try {
    outside();
  } catch (error) {
    got.outside = error.kind;
  }
  const one = new Int32Array(1);
  const sent = pr.send(Int32Array.of(41 + rank), { groupDst: rank, group });
  await pr.recv(one, { groupSrc: rank, group });
  await sent;
  got.one = one[0];
  const works = Array.from({ length: size }, (_, other) => group.send([one], other, 9));
  got.anyone = [];
  for (let k = 0; k < size; k++) {
    const value = new Int32Array(1);
    await group.recvAnysource([value], 9);
    got.anyone.push(value[0]);
  }
  await Promise.all(works);
  const timed = group.barrier();
  await timed;
  got.sequence = timed.sequence;
  got.durations = [timed.duration, timed.duration];
  await group.send([new Float64Array(2)], rank, 3);
  const failure = await group.recv([new Float64Array(3)], rank, 3).catch((error) => error);
  got.failure = [failure.kind, failure.from, failure.to, failure.sentBytes];
  const total = Float32Array.of(1);
  await group.allreduce(total);
  got.total = total[0];
  return got;
}
