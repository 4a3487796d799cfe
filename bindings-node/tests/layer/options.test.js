// What handwritten calls do not take is refused at the call, with the name of the call and of what
// is wrong, as generated calls refuse it: a misspelt limit is no wait without one.

import assert from "node:assert/strict";
import test from "node:test";

import * as pr from "../../js/index.js";

const x = new Float32Array(2);

/** A group of one process that stands alone, until the end of the test. */
async function alone(test) {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
  test.after(() => group.shutdown());
  return group;
}

/** Asserts that each call throws an error that says these texts. */
function refused(calls) {
  for (const [call, ...texts] of calls) {
    assert.throws(call, (error) => {
      assert.equal(error.name, "InvalidTypeError", `${call}: ${error}`);
      const missing = texts.filter((text) => !error.message.includes(text));
      assert.deepEqual(missing, [], `${call}: ${error.message}`);
      return true;
    }, `${call}`);
  }
}

test("a wait takes its options and nothing else", async (t) => {
  const group = await alone(t);
  const work = group.allreduce(x);
  const prepared = group.prepareAllreduce(x);
  // Before the first start, after one without a handle, and after one with a handle.
  for (const next of [() => {}, () => prepared.run(), () => prepared.start()]) {
    await next();
    for (const object of [work, prepared]) {
      refused([
        [() => object.wait(50), "wait()", "'options'", "50", "timeout"],
        [() => object.wait("x"), "wait()", "'options'", "string"],
        [() => object.wait([]), "wait()", "'options'", "Array"],
        [() => object.wait({ timout: 5 }), "wait()", "there is no argument 'timout'"],
        [() => object.wait({ timeout: "5" }), "wait()", "'timeout'", "string"],
        [() => object.wait({ signal: 5 }), "'signal'"],
        [() => object.wait({}, 5), "wait()", "at most 1"],
      ]);
      assert.throws(() => object.wait({ timeout: -1 }), { name: "InvalidArgumentError" });
      for (const right of [undefined, null, {}, { timeout: 9000 }, { timeout: null }]) {
        await object.wait(right);
      }
      const signal = AbortSignal.abort(new Error("enough"));
      await assert.rejects(object.wait({ signal }), { message: "enough" });
    }
  }
  refused([
    [() => work.synchronize({ timeout: 5 }), "synchronize()"],
    [() => work.getFuture(5), "getFuture()"],
    [() => work.getFutureResult({ timeout: 5 }), "getFutureResult()"],
    [() => work.isCompleted(5), "isCompleted()"],
    [() => work.isSuccess(5), "isSuccess()"],
    [() => work.exception(5), "exception()"],
    [() => work.result(5), "result()"],
    [() => work.sourceRank(5), "sourceRank()"],
    [() => prepared.run({ timeout: 5 }), "run()"],
    [() => prepared.start({ timeout: 5 }), "start()"],
  ]);
});

test("hooks and windows take what they say", async (t) => {
  const group = await alone(t);
  const hook = () => {};
  for (const sort of ["Pre", "Post", "Completion", "Abort"]) {
    const [register, unregister] = [`register${sort}Hook`, `unregister${sort}Hook`];
    refused([
      [() => group[register](1, hook, { once: true }), register, "'once'"],
      [() => group[register](1, hook, 5), register, "at most 2"],
      [() => group[unregister](1, 5), unregister, "at most 1"],
      [() => group[unregister](1, { hook }), unregister, "'hook'"],
    ]);
  }
  refused([
    [() => group.newWindow(x, 5), "newWindow"],
    [() => group.newWindow(x, { ownin: true }), "newWindow", "'ownin'"],
    [() => new pr.PrefixStore("a", new pr.HashStore(), { b: 1 }), "PrefixStore", "'b'"],
    [() => pr.nanCheck({ allow: true }), "nanCheck", "'allow'"],
  ]);
});

test("messages, tensors, operators and backends take what they say", async (t) => {
  const group = await alone(t);
  const made = (...others) => () => new pr.P2POp(pr.isend, x, 0, ...others);
  refused([
    [made({ group, tagg: 3 }), "P2POp()", "'tagg'"],
    [made(5), "P2POp()", "'options'"],
    [made(group), "P2POp()", "'options'"],
    [made({ group, tag: "3" }), "P2POp()", "'tag'"],
    [made({ group }, 3), "P2POp()", "at most 4"],
    [() => new pr.P2POp(pr.isend, null, 0, { group }), "P2POp()", "'tensor'", "null"],
    [() => new pr.P2POp(pr.isend, [1], 0, { group }), "P2POp()", "'tensor'", "Array"],
    [() => new pr.P2POp(pr.isend, x, "0", { group }), "P2POp()", "'peer'"],
    [() => pr.batchIsendIrecv([], { timeout: 5 }), "batchIsendIrecv()"],
    [() => pr.tensor(x, { dtyp: "bf16" }), "tensor()", "'dtyp'"],
    [() => pr.tensor(x, [2, 2]), "tensor()", "'options'", "Array"],
    [() => pr.tensor(x, "bf16"), "tensor()", "'options'", "string"],
    [() => pr.alloc("f32", [2], { dtyp: 1 }), "alloc()"],
    [() => pr.ReduceOp.custom(() => x, { comute: true }), "custom()", "'comute'"],
    [() => pr.ReduceOp.custom(() => x, { commute: "no" }), "custom()", "'commute'"],
    [() => pr.ReduceOp.custom(() => x, true), "custom()", "'options'"],
    [() => pr.premulSum(2, 3), "premulSum()"],
    [() => pr.registerBackend("zz", () => ({}), { device: ["cpu"] }), "'device'"],
    [() => pr.registerBackend("zz", () => ({}), { devices: [1] }), "'devices'"],
    [() => pr.registerBackend("zz", () => ({}), { extendedApi: 1 }), "'extendedApi'"],
    [() => pr.registerBackend("zz", () => ({}), ["cpu"]), "registerBackend()"],
    [() => pr.rendezvous("tcp://127.0.0.1:1", { timout: 5 }), "rendezvous()", "'timout'"],
    [() => pr.rendezvous("tcp://127.0.0.1:1", 5), "rendezvous()", "'options'"],
    [() => pr.registerRendezvousHandler(5, () => {}), "'scheme'"],
    [() => pr.recordComm("name", () => {}, 5), "recordComm()"],
    [() => pr.withProcessGroup(group, () => {}, 5), "withProcessGroup()"],
  ]);
  assert.equal(pr.Backend.ZZ, undefined);
  assert.equal(pr.tensor(x, null).shape[0], 2);
  assert.equal(pr.ReduceOp.custom(() => x, { commute: true }).commute, true);
});

test("a rendezvous of the program's own does not begin with wrong options", () => {
  const met = [];
  pr.registerRendezvousHandler("optionstest", (...given) => met.push(given));
  const initMethod = "optionstest://here";
  refused([
    [() => pr.initProcessGroup({ initMethod, timout: 5 }), "'timout'"],
    [() => pr.joinGroup("g", { initMethod, timout: 5 }), "'timout'"],
  ]);
  assert.deepEqual(met, []);
});

test("tensors of a device are told what they can be told", async () => {
  const calls = [
    [() => pr.CudaTensor.from(x, { devce: 1 }), "CudaTensor.from()", "'devce'"],
    [() => pr.CudaTensor.zeros("f32", 2, { devce: 1 }), "CudaTensor.zeros()", "'devce'"],
    [() => pr.CudaTensor.empty("f32", 2, 1), "CudaTensor.empty()", "'options'"],
  ];
  for (const [call, ...texts] of calls) {
    await assert.rejects(call, (error) => {
      assert.equal(error.name, "InvalidTypeError");
      return texts.every((text) => error.message.includes(text));
    }, `${call}`);
  }
  refused([[() => pr.CudaTensor.fromPointer({ pionter: 1n }), "fromPointer()", "'pionter'"]]);
});

test("element types have one name, which calls take and give", () => {
  for (const [name, value] of Object.entries(pr.DType)) assert.equal(value, name);
  const complex = pr.tensor(new Float32Array(4), { dtype: pr.DType.complex64 });
  assert.deepEqual([complex.dtype, complex.shape], ["complex64", [2]]);
  assert.throws(() => pr.tensor(x, { dtype: "c64" }), { name: "InvalidArgumentError" });
});

test("blocks, current groups and meshes take what they say", async (t) => {
  const group = await alone(t);
  const { DeviceMesh, withDeviceMesh, withProcessGroup } = pr;
  const mesh = DeviceMesh.fromGroup(group, "cpu");
  for (const within of [() => withDeviceMesh(mesh), () => withProcessGroup(group)]) {
    refused([[within, "'callback' must be a function, not undefined"]]);
  }
  const none = () => {};
  refused([
    [() => withDeviceMesh(mesh, {}), "withDeviceMesh()", "'callback' must be a function"],
    [() => withDeviceMesh(mesh, none, 5), "withDeviceMesh()", "at most 2"],
    [() => withProcessGroup(group, {}), "withProcessGroup()", "'callback' must be a function"],
    [() => withDeviceMesh(mesh, () => pr.currentDeviceMesh({})), "currentDeviceMesh()", "no arg"],
    [() => withProcessGroup(group, () => pr.currentProcessGroup({})), "currentProcessGroup()"],
    [() => group.getBackend("cpu", { index: 0 }), "getBackend()", "at most 1"],
  ]);
  class Backends {}
  const wrong = [new Map([["dp", "tcp"]]), [["dp", "tcp"]], new Backends(), 5, true];
  for (const backendOverride of wrong) {
    const options = { meshDimNames: ["dp"], backendOverride };
    refused([[() => pr.initDeviceMesh("cpu", [1], options), "'backendOverride' must be an obj"]]);
  }
});

test("lengths of time are numbers", async (t) => {
  const group = await alone(t);
  for (const timeout of [{ kind: "duration", ms: 5 }, [5], new Uint8Array(1), () => 5, "5"]) {
    refused([
      [() => group.barrier({ timeout }), "barrier()", "timeout"],
      [() => group.splitGroup([0], { timeout }), "splitGroup()", "timeout"],
      [() => pr.rendezvous("file:///nowhere", { timeout }), "rendezvous()", "timeout"],
      [() => group.monitoredBarrier([timeout]), "monitoredBarrier()"],
    ]);
  }
});
