// A rank in Node where there may be no CUDA driver: whatever needs one says what was looked for.
// Prints "ok 0" when all is as it should be, a machine with a device included.

import assert from "node:assert/strict";

/** The exit code is 0 if all went well. */
export async function main(pr, here) {
  const made = {
    from: async () => pr.CudaTensor.from(new Float32Array(3)),
    zeros: async () => pr.CudaTensor.zeros("f32", 3),
    empty: async () => pr.CudaTensor.empty("f32", 3),
    fromPointer: async () => {
      return pr.CudaTensor.fromPointer({ pointer: 4096n, dtype: "f32", shape: 0, owner: {} });
    },
  };
  for (const [name, make] of Object.entries(made)) {
    try {
      (await make()).free();
    } catch (error) {
      assert.equal(error.kind, "BackendUnavailable", `${name}: ${error.stack}`);
      assert.ok(error instanceof pr.BackendUnavailableError);
      assert.equal(error.backend, "cuda");
      assert.match(error.message, /there is no CUDA driver: looked for libcuda\.so|no device/);
    }
  }
  here.say("ok 0");
  return 0;
}
