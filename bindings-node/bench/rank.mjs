// One rank of the benchmark: times what it is told to, and sends the times back.

import * as pr from "polyrank";

const rank = Number(process.argv[2]);
const { port, calls, bytes, rounds } = JSON.parse(process.argv[3]);

const options = { isMaster: rank === 0, waitForWorkers: false };
const store = await pr.TCPStore.connect("127.0.0.1", port, options);
const group = await pr.ProcessGroup.join(store, rank, 2);

async function micros() {
  const small = Float32Array.of(1);
  // As many before: the compiler goes on optimising for thousands of calls.
  for (let call = 0; call < calls; call += 1) await group.allreduce(small);
  const times = [];
  for (let call = 0; call < calls; call += 1) {
    const start = process.hrtime.bigint();
    await group.allreduce(small);
    times.push(Number(process.hrtime.bigint() - start) / 1000);
  }
  return times.sort((a, b) => a - b);
}

async function seconds(tensor) {
  await group.allreduce(tensor);
  const times = [];
  for (let round = 0; round < rounds; round += 1) {
    const start = performance.now();
    await group.allreduce(tensor);
    times.push((performance.now() - start) / 1000);
  }
  return times;
}

const result = {
  micros: await micros(),
  staged: await seconds(new Float32Array(bytes / 4).fill(1)),
  owned: await seconds(pr.alloc("f32", [bytes / 4])),
};
await group.shutdown();
process.send(result, () => process.disconnect());
