// A rank in Node over NCCL, of which the last one ends without a word: the others get an error, no
// later than the deadline, and the tensor stays what it is. Prints "ok RANK" when all is as it
// should be.

import assert from "node:assert/strict";

/** The exit code is 0 if all went well. */
export async function main(pr, here) {
  await pr.initProcessGroup(here.init);
  const [group, rank, size] = [pr.defaultGroup(), pr.getRank(), pr.getWorldSize()];
  const tensor = await pr.CudaTensor.zeros("f32", 1000, { device: rank });
  await group.allreduce(tensor);
  const store = group.getGroupStore();
  await store.set(`through/${rank}`, "");
  if (rank === size - 1) {
    // A rank that is done with an operation may leave while others are still in it.
    await store.wait(Array.from({ length: size }, (_, other) => `through/${other}`));
    process.exit(0);
  }
  // It is thrown immediately if the group knows it by then.
  const call = async () => group.allreduce(tensor, { timeout: 1000 });
  const error = await call().then(() => assert.fail("the last rank was gone"), (error) => error);
  const kinds = ["CollectiveTimeout", "RankFailed", "Aborted"];
  assert.ok(kinds.includes(error.kind), `${error.kind}: ${error.stack}`);
  assert.deepEqual([tensor.dtype, tensor.shape], ["f32", [1000]]);
  tensor.free();
  await group.abort();
  here.say(`ok ${rank}`);
  return 0;
}
