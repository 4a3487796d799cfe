// A rank in Node with tensors in memory of a CUDA device. The driver is a double, and so is the
// memory. Prints "ok RANK" when all is as it should be. Knows nothing of how ranks are started.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

let pr;
let rank;
let size;

/** A tensor of so many elements of a value on this rank's device. */
function filled(value, length = 3, device = rank) {
  return pr.CudaTensor.from(new Float32Array(length).fill(value), { device });
}

async function elements(tensor) {
  return [...(await tensor.toArray())];
}

function copies(value, length = 3) {
  return new Array(length).fill(value);
}

/** Sum of the numbers of all ranks. */
const total = () => (size * (size - 1)) / 2;

const TESTS = {
  async whatIsMadeIsWhatWasGiven() {
    const ours = await pr.CudaTensor.from(Float64Array.of(1, 2, 3, 4), { shape: [2, 2] });
    assert.deepEqual([ours.dtype, ours.shape, ours.strides], ["f64", [2, 2], [2, 1]]);
    assert.deepEqual([ours.size, ours.byteLength, ours.device], [4, 32, "cuda:0"]);
    assert.equal(typeof ours.pointer, "bigint");
    assert.equal(ours.stream, 0n);
    assert.deepEqual(await ours.toArray(), Float64Array.of(1, 2, 3, 4));
    const zeros = await pr.CudaTensor.zeros("i64", [2, 3], { device: `cuda:${rank}` });
    assert.deepEqual([zeros.device, zeros.shape], [`cuda:${rank}`, [2, 3]]);
    assert.deepEqual(await zeros.toArray(), new BigInt64Array(6));
    const empty = await pr.CudaTensor.empty("bf16", 0, { device: "cuda" });
    assert.deepEqual(await empty.toArray(), new Uint16Array(0));
    assert.equal((await pr.CudaTensor.empty("u8", [7])).byteLength, 7);
    // Every second element of the second row on, as a tensor of the host has it.
    const matrix = pr.tensor(Int16Array.of(0, 1, 2, 3, 4, 5, 6, 7, 8), { shape: [3, 3] });
    const columns = pr.tensor(matrix.data, { shape: [2, 2], strides: [3, 2], offset: 3 });
    const dense = await pr.CudaTensor.from(columns);
    assert.deepEqual([dense.strides, await elements(dense)], [[2, 1], [3, 5, 6, 8]]);
    const half = pr.tensor(Uint16Array.of(0x3c00), { dtype: "f16" });
    assert.equal((await pr.CudaTensor.from(half)).dtype, "f16");
    const owned = pr.alloc("f32", [2]);
    owned.data.set([5, 6]);
    assert.deepEqual(await elements(await pr.CudaTensor.from(owned)), [5, 6]);
    const into = new DataView(new ArrayBuffer(8));
    assert.equal(await (await pr.CudaTensor.from(owned)).copyTo(into), into);
    assert.equal(into.getFloat32(4, true), 6);
  },

  async wrongArgumentsAreRefused() {
    const array = new Float32Array(3);
    const { from, zeros, fromPointer } = pr.CudaTensor;
    const mistake = (kind, message) => ({ kind, message });
    const wrong = [
      [() => from([1, 2]), mistake("InvalidType", /must be a typed array/)],
      [
        () => from(array, { shape: [2] }),
        mistake("InvalidArgument", /not a shape of the 3 elements/),
      ],
      [() => from(array, { device: "cpu" }), mistake("InvalidArgument", /CUDA device.*not cpu/)],
      [() => from(array, { device: -1 }), mistake("InvalidArgument", /index of a CUDA device/)],
      [() => from(array, { device: 8 }), mistake("InvalidArgument", /no CUDA device 8: .* sees 8/)],
      [() => zeros("f31", 3), mistake("InvalidArgument", /no dtype is called 'f31'/)],
    ];
    for (const [call, expected] of wrong) await assert.rejects(call, expected);
    const right = { pointer: 4096n, dtype: "f32", shape: [2], owner: {} };
    for (const [change, expected] of [
      [{ pointer: 4096 }, mistake("InvalidType", /'pointer' must be a BigInt/)],
      [{ pointer: 0n }, mistake("InvalidArgument", /'pointer' is null/)],
      [{ pointer: 1n << 70n }, mistake("InvalidArgument", /64 bits/)],
      [{ stream: 7 }, mistake("InvalidType", /'stream' must be a BigInt/)],
      [{ owner: undefined }, mistake("InvalidType", /'owner' must be an object/)],
      [{ strides: [1, 1] }, mistake("InvalidArgument", /equally long/)],
    ]) {
      assert.throws(() => fromPointer({ ...right, ...change }), expected);
    }
    assert.throws(() => new pr.CudaTensor(), mistake("InvalidType", /is made by/));
    const tensor = await filled(1);
    await assert.rejects(tensor.copyTo(new Float32Array(2)), /has 8 bytes, the tensor 12/);
    tensor.free();
    tensor.free();
    assert.deepEqual([tensor.dtype, tensor.shape, tensor.device], ["f32", [3], `cuda:${rank}`]);
    await assert.rejects(tensor.toArray(), mistake("InvalidArgument", /after free\(\)/));
    assert.throws(() => pr.allReduce(tensor), mistake("InvalidArgument", /after free\(\)/));
  },

  async operationsUseItInPlace() {
    const tensor = await filled(rank + 1);
    assert.equal(await pr.allReduce(tensor), tensor);
    assert.deepEqual(await elements(tensor), copies(total() + size));
    const parts = await Promise.all(copies(-1, size).map((value) => filled(value)));
    await pr.allGather(parts, await filled(rank));
    const gathered = await Promise.all(parts.map(elements));
    assert.deepEqual(gathered, gathered.map((_, other) => copies(other)));
    const work = pr.defaultGroup().allreduce(tensor);
    assert.deepEqual(work.result(), [tensor]);
    await work.wait({ timeout: 60_000 });
    assert.ok(work.isCompleted() && work.isSuccess());
    const prepared = pr.defaultGroup().prepareAllreduce(await filled(1));
    for (const expected of [size, size ** 2]) {
      assert.deepEqual(await elements(await prepared.start()), copies(expected));
    }
  },

  async manyAreInFlightAtOnce() {
    const tensors = await Promise.all(copies(0, 40).map((_, index) => filled(index, 1 + index)));
    await Promise.all(tensors.map((tensor) => pr.allReduce(tensor)));
    for (const [index, tensor] of tensors.entries()) {
      assert.deepEqual(await elements(tensor), copies(index * size, 1 + index));
    }
    // Those on one tensor follow one another, and large ones leave the event loop alone.
    const large = await filled(1, 300_000);
    const works = [pr.allReduce(large), pr.allReduce(large), pr.allReduce(large)];
    large.free();
    await Promise.all(works);
    const other = await filled(1, 300_000);
    await Promise.all([pr.allReduce(other), pr.allReduce(other)]);
    assert.ok((await other.toArray()).every((value) => value === size ** 2));
  },

  async messagesMeet() {
    if (size === 1) return;
    const [next, before] = [(rank + 1) % size, (rank + size - 1) % size];
    const [ours, theirs] = [await filled(rank), await filled(-1)];
    if (rank === 0) {
      await pr.send(ours, { dst: next });
      await pr.recv(theirs, { src: before });
    } else {
      await pr.recv(theirs, { src: before });
      await pr.send(ours, { dst: next });
    }
    assert.deepEqual(await elements(theirs), copies(before));
    // Those that go together meet in any order, also behind others.
    const [to, from] = [await filled(rank, 50_000), await filled(-1, 50_000)];
    const messages = [new pr.P2POp(pr.isend, to, next), new pr.P2POp(pr.irecv, from, before)];
    if (rank === 1) messages.reverse();
    const sum = pr.allReduce(to);
    const works = pr.batchIsendIrecv(messages);
    const given = await Promise.all(works);
    await sum;
    assert.deepEqual(given, rank === 1 ? [from, undefined] : [undefined, from]);
    assert.deepEqual(works[0].result(), [from]);
    assert.deepEqual(await elements(from), copies(total(), 50_000));
    const group = await pr.newGroup([...Array(size).keys()]);
    const again = messages.map(({ op, tensor, peer }) => new pr.P2POp(op, tensor, peer, { group }));
    await Promise.all(pr.batchIsendIrecv(again));
    const self = [new pr.P2POp(pr.isend, to, rank), new pr.P2POp(pr.irecv, from, before)];
    assert.throws(() => pr.batchIsendIrecv(self), { kind: "InvalidArgument" });
    await group.shutdown();
  },

  async aGroupRoutesByDevice() {
    const [onDevice, onHost] = [await filled(rank), Float32Array.of(rank, 1)];
    await Promise.all([pr.allReduce(onDevice), pr.allReduce(onHost)]);
    assert.deepEqual(await elements(onDevice), copies(total()));
    assert.deepEqual([...onHost], [total(), size]);
    await pr.barrier();
    const mixed = async () => pr.defaultGroup().allreduceCoalesced([onDevice, onHost]);
    const says = new RegExp(`on one device, got cuda:${rank} and cpu`);
    await assert.rejects(mixed, { kind: "InvalidArgument", message: says });
    const all = await pr.newGroup([...Array(size).keys()], { backend: "tcp" });
    // By way of the host.
    await all.allreduce(onDevice);
    assert.deepEqual(await elements(onDevice), copies(total() * size));
    const refused = async () => all.send([onDevice], (rank + 1) % size);
    await assert.rejects(refused, { message: /none serves CUDA tensors.*cpu:tcp,cuda:nccl/ });
    const host = Float32Array.of(1);
    await all.allreduce(host);
    assert.equal(host[0], size);
    await all.shutdown();
  },

  async anotherDeviceIsRefused() {
    const elsewhere = await filled(1, 3, size + 1);
    const says = new RegExp(`uses cuda:${rank} in the group, and a tensor is on cuda:${size + 1}`);
    await assert.rejects(async () => pr.allReduce(elsewhere), { message: says });
    // Nobody is any the worse for it.
    const tensor = await filled(1);
    assert.deepEqual(await elements(await pr.allReduce(tensor)), copies(size));
  },

  async foreignMemoryIsUsedWhereItLies() {
    const base = await pr.CudaTensor.from(Float32Array.of(1, 2, 3, 4), { device: rank });
    const place = { dtype: "f32", device: rank, owner: base };
    const middle = pr.CudaTensor.fromPointer({ ...place, pointer: base.pointer + 4n, shape: 2 });
    await pr.allReduce(middle);
    assert.deepEqual(await elements(base), [1, 2 * size, 3 * size, 4]);
    const strided = pr.CudaTensor.fromPointer({
      ...place,
      pointer: base.pointer,
      shape: [2],
      strides: [2],
    });
    assert.deepEqual(strided.strides, [2]);
    assert.deepEqual(await elements(strided), [1, 3 * size]);
    const refused = async () => pr.allReduce(strided);
    await assert.rejects(refused, { kind: "InvalidArgument", message: /must be contiguous/ });
  },

  async anOwnerIsKeptWhileAnOperationUsesTheMemory() {
    const group = pr.defaultGroup();
    const store = group.getGroupStore();
    const gone = [];
    const registry = new FinalizationRegistry((name) => gone.push(name));
    const memory = await filled(1);
    const begin = () => {
      const owner = { memory };
      registry.register(owner, "owner");
      const place = { pointer: memory.pointer, dtype: "f32", shape: [3], device: rank, owner };
      return group.allreduce(pr.CudaTensor.fromPointer(place)).then(() => null);
    };
    // Rank 0 has issued its part, and nobody else has come.
    if (rank > 0) await store.wait(["the owner is kept"]);
    const over = begin();
    if (rank === 0 && size > 1) {
      await collected(() => false, 20);
      assert.deepEqual(gone, []);
      await store.set("the owner is kept", "");
    }
    await over;
    await collected(() => gone.length > 0, 10_000);
    assert.deepEqual(gone, ["owner"]);
    assert.deepEqual(await elements(memory), copies(size));
  },

  async whatIsCollectedIsFreed() {
    const log = process.env.NCCL_DOUBLE_LOG;
    const freed = async () => (await readFile(log, "utf8")).match(/cuMemFree of/g)?.length ?? 0;
    await collected(() => false, 20);
    const before = await freed();
    const made = async () => {
      for (let index = 0; index < 20; index += 1) await filled(index, 1000);
    };
    await made();
    await collected(async () => (await freed()) >= before + 20, 10_000);
    assert.ok((await freed()) >= before + 20);
  },
};

/** Collects what nobody has, until that shows or for so many turns of the event loop. */
async function collected(shows, turns) {
  for (let turn = 0; turn < turns && !(await shows()); turn += 1) {
    collect();
    await nextTurn();
  }
}

/** The exit code is 0 if all went well. */
export async function main(polyrank, here) {
  pr = polyrank;
  // Each rank has a log of its own.
  process.env.NCCL_DOUBLE_LOG += `.${process.env.RANK}`;
  assert.ok(pr.isNcclAvailable(), pr.backendUnavailableReason("nccl"));
  // Bound to its device from the start, or by the first call.
  const deviceId = process.env.WORLD_SIZE === "2" ? undefined : Number(process.env.RANK);
  await pr.initProcessGroup({ ...here.init, backend: "cpu:tcp,cuda:nccl", deviceId });
  [rank, size] = [pr.getRank(), pr.getWorldSize()];
  for (const [name, run] of Object.entries(TESTS)) {
    try {
      await run();
    } catch (error) {
      here.say(`rank ${rank}: ${name}: ${error.stack}`);
      throw error;
    }
  }
  await pr.destroyProcessGroup();
  here.say(`ok ${rank}`);
  return 0;
}
