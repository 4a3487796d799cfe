// What functions of the program throw that nobody can look at: it fails their operation, and does
// not end the process. Stores that throw so are in `custom_stores.test.js`.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "../js/index.js";
import { UNREADABLE } from "./support/unreadable.js";

const alone = (options) => pr.ProcessGroup.join(new pr.HashStore(), 0, 1, options);

/** How a promise rejects, which nobody looks at. */
const rejection = (promise) => promise.then(() => assert.fail("it did not fail"), (why) => [why]);

for (const [index, thrown] of UNREADABLE.entries()) {
  const fail = () => {
    throw thrown;
  };

  test(`hooks throw what cannot be looked at: ${index}`, async () => {
    const group = await alone();
    group.registerPreHook(1, fail);
    const large = new Float32Array(1 << 20);
    const [why] = await rejection((async () => group.allreduce(large))());
    assert.ok(why === thrown);
    await group.shutdown();
    const other = await alone();
    other.registerPostHook(1, fail);
    other.registerCompletionHook(2, fail);
    const array = Float32Array.of(3);
    await other.allreduce(array);
    assert.equal(array[0], 3);
    await other.shutdown();
  });

  test(`a reduction throws what cannot be looked at: ${index}`, async () => {
    const store = new pr.HashStore();
    const groups = await Promise.all([0, 1].map((rank) => pr.ProcessGroup.join(store, rank, 2)));
    const op = pr.ReduceOp.custom(fail);
    const reduce = (group) => rejection(group.allreduce(Float32Array.of(1), op));
    for (const [why] of await Promise.all(groups.map(reduce))) {
      assert.ok(why instanceof pr.PolyrankError);
    }
    await Promise.all(groups.map((group) => group.shutdown()));
  });

  test(`a backend throws what cannot be looked at: ${index}`, async () => {
    pr.registerBackend(`broken${index}`, () => ({ allreduce: fail }));
    const group = await alone({ backend: `broken${index}` });
    const [why] = await rejection(group.allreduce(Float32Array.of(1)));
    assert.ok(why instanceof pr.DistBackendError);
    assert.ok(why.cause === thrown);
    await group.shutdown();
    pr.registerBackend(`unmade${index}`, fail);
    const [unmade] = await rejection(alone({ backend: `unmade${index}` }));
    assert.ok(unmade instanceof pr.PolyrankError);
  });
}
