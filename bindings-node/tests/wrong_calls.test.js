// What is said of wrong calls: in the words of JavaScript, with the call and its argument.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as pr from "../js/index.js";

let group;
before(async () => {
  await pr.initProcessGroup({ store: new pr.HashStore(), rank: 0, worldSize: 1 });
  group = pr.defaultGroup();
});
after(() => pr.destroyProcessGroup());

/** What a call throws, or rejects with. */
async function thrown(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error(`${call} went well`);
}

test("wrong calls with objects speak of lists and objects", async () => {
  const calls = [
    [() => pr.broadcastObjectList([1], "x"), "(array, string)", "objectList: unknown[],"],
    [() => pr.sendObjectList([5], "q"), "(array, string)", "objectList: unknown[],"],
    [() => pr.recvObjectList([null], {}, 3), "(array, ", "objectList: unknown[],"],
    [
      () => pr.scatterObjectList([null], { scatterObjectInputList: [1], src: "x" }),
      "(array, { scatterObjectInputList: array, src: string })",
      "scatterObjectInputList?: unknown[],",
    ],
    [() => pr.gatherObject(7, { dst: "x" }), "(object, { dst: string })", "obj: unknown,"],
  ];
  for (const [call, given, form] of calls) {
    const { name, message } = await thrown(call);
    assert.equal(name, "InvalidTypeError", `${call}`);
    assert.ok(message.includes(` does not take ${given}`), message);
    assert.ok(message.includes(form), message);
    assert.doesNotMatch(message.split("\n")[0], /Uint8Array|number, /);
  }
});

test("what is wrong with an array is told with the call and the argument", async () => {
  const gone = new Float32Array(4);
  structuredClone(gone.buffer, { transfer: [gone.buffer] });
  const calls = [
    [() => pr.allReduce(gone), "allReduce(): argument 'tensor': the memory of an array"],
    [() => group.allreduce(gone), "allreduce(): argument 'tensors': the memory of an array"],
    [() => group.prepareScan(gone), "prepareScan(): argument "],
    [() => pr.send(gone, 0), "send(): argument 1: the memory of an array"],
    [() => pr.scatter(gone, { scatterList: [gone], src: 0 }), "scatter(): argument 'tensor': "],
    [
      () => pr.scatter(new Float32Array(4), { scatterList: [gone], src: 0 }),
      "scatter(): option 'scatterList': the memory of an array",
    ],
  ];
  for (const [call, text] of calls) {
    const { name, message } = await thrown(call);
    assert.equal(name, "InvalidArgumentError", `${call}`);
    assert.ok(message.startsWith(text), message);
  }
});

test("what the group refuses harms nothing else, also if it had to wait its turn", async () => {
  const window = await group.newWindow();
  const registered = () => window.tensorRegister(pr.alloc("f32", [4]));
  const large = new Float32Array(8 << 20);
  for (const before of [() => null, () => group.allreduce(large)]) {
    const calls = [() => window.tensorDeregister(), registered, registered];
    const works = [before(), ...calls.map(kindOf)];
    const [, ...kinds] = await Promise.all(works);
    assert.deepEqual(kinds, ["InvalidArgument", null, "InvalidArgument"]);
    assert.equal(group.getError(), pr.WorkResult.SUCCESS);
    assert.deepEqual(await group.allreduce(Float32Array.of(3)), Float32Array.of(3));
    await window.tensorDeregister();
  }
});

/** The kind of error that a call throws or rejects with; null: none. */
async function kindOf(call) {
  try {
    await call();
  } catch (error) {
    return error.kind;
  }
  return null;
}
