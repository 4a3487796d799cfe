// What each rank does in the tests of meshes.

import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";

/** Runs `body` with a default group of all ranks. */
async function inWorld({ pr, store, rank, size }, body) {
  const own = new pr.PrefixStore("world", store);
  const world = await pr.initProcessGroup({ store: own, rank, worldSize: size, timeout: 60_000 });
  const value = await body(world);
  await pr.destroyProcessGroup();
  return value;
}

/** Meshes of these shapes: what a test compares with arithmetic. */
export function shapes(here) {
  const { pr, rank, argument } = here;
  return inWorld(here, async () => {
    const found = [];
    for (const shape of argument) {
      const meshDimNames = ["dp", "pp", "tp"].slice(0, shape.length);
      const mesh = await pr.initDeviceMesh("cpu", shape, { meshDimNames });
      found.push(await describe(mesh, rank, meshDimNames));
    }
    return found;
  });
}

async function describe(mesh, rank, names) {
  const { deviceType, meshDimNames, ndim, shape } = mesh;
  const coordinate = mesh.getCoordinate();
  const lines = [];
  for (const [dim, name] of (coordinate === null ? [] : names).entries()) {
    const group = mesh.getGroup(name);
    assert.equal(group, mesh.getGroup(dim));
    assert.equal(group, mesh.getGroup(dim - names.length));
    assert.equal(group, mesh.getAllGroups()[dim]);
    assert.equal(mesh.getLocalRank(name), group.rank());
    const [sum] = await group.allreduce(Float64Array.of(rank + 0.5));
    lines.push({ ranks: group.ranks(), at: group.rank(), sum, size: mesh.size(name) });
  }
  if (coordinate === null) assert.throws(() => mesh.getGroup(0), { kind: "InvalidGroup" });
  const [total, own] = [mesh.size(), mesh.getRank()];
  return { mesh: mesh.mesh, coordinate, deviceType, meshDimNames, ndim, shape, total, own, lines };
}

/** Arrays of ranks in all forms. */
export function arrays(here) {
  const { pr } = here;
  return inWorld(here, async () => {
    const some = [3, 1, 0, 2];
    const forms = [
      [[3, 1], [0, 2]],
      pr.tensor(Int32Array.from(some), { shape: [2, 2] }),
      pr.tensor(BigInt64Array.from([3n, 0n, 1n, 2n]), { shape: [2, 2], strides: [1, 2] }),
      pr.tensor(Uint8Array.from([9, ...some]), { shape: [2, 2], offset: 1 }),
    ];
    const meshes = [];
    for (const form of forms) meshes.push(await pr.DeviceMesh.create("cpu", form));
    const flat = await pr.DeviceMesh.create("cpu", Uint16Array.from(some));
    assert.ok(meshes.every((mesh) => mesh.equals(meshes[0])) && !flat.equals(meshes[0]));
    const alone = await pr.DeviceMesh.create("cpu", [1, 0], { initBackend: false });
    assert.throws(() => alone.getGroup(), { kind: "InvalidGroup" });
    assert.equal(`${alone}`, "DeviceMesh('cpu', [1, 0])");
    const given = { dpShard: "gloo", 1: { backend: "gloo" }, last: ["gloo", { timeout: 9000 }] };
    const meshDimNames = ["dpShard", "pp", "tp", "last"];
    const options = { meshDimNames, backendOverride: given };
    const mixed = await pr.initDeviceMesh("cpu", [1, 2, 2, 1], options);
    const backends = mixed.getAllGroups().map((group) => pr.getBackend({ group }));
    return { meshes: meshes.map((mesh) => mesh.mesh), flat: flat.mesh, backends };
  });
}

/** Parts, flattened dimensions, groups that exist, the current mesh, and what is wrong. */
export async function parts(here) {
  const { pr, rank } = here;
  const { mesh, ...found } = await inWorld(here, async (world) => {
    const meshDimNames = ["dp", "pp", "cp"];
    const mesh = await pr.initDeviceMesh("cpu", [2, 2, 2], { meshDimNames });
    const part = mesh.slice(["dp", "cp"]);
    assert.equal(part.getRootMesh(), mesh);
    assert.equal(mesh.slice(meshDimNames), mesh);
    assert.equal(part.getGroup("cp"), mesh.slice("cp").getGroup());
    const flat = await part.flatten();
    assert.ok(mesh.slice("dp_cp").equals(flat));
    for (const whole of [mesh, part, flat, mesh.slice("pp")]) {
      assert.equal(whole.getGroup("dp_cp"), flat.getGroup());
      assert.equal(whole.getLocalRank("dp_cp"), flat.mesh.indexOf(rank));
      assert.equal(whole.size("dp_cp"), 4);
    }
    const [sum] = await flat.getGroup().allreduce(Int32Array.of(rank));
    const refused = (call, message, kind = "InvalidArgument") => {
      assert.throws(call, { kind, message });
    };
    refused(() => mesh.slice(["cp", "dp"]), /in the order of the dimensions/, "MeshDimension");
    refused(() => mesh.slice("ep"), /no dimension 'ep'; its dimensions are/, "MeshDimension");
    refused(() => mesh.getGroup(), /3 dimensions: meshDim must say/);
    const one = pr.DeviceMesh.fromGroup(world, "cpu", { meshDimNames: ["all"] });
    assert.equal(one.getGroup("all"), world);
    refused(() => pr.DeviceMesh.fromGroup([world, world], "cpu"), /Must pass mesh/);
    refused(() => pr.DeviceMesh.fromGroup(world, "cuda:0"), /give 'cuda'/);
    const wider = pr.extendDeviceMesh(mesh, world, { name: "replica", dim: 1 });
    assert.deepEqual([wider.shape, wider.meshDimNames[1]], [[2, 1, 2, 2], "replica"]);
    assert.equal(wider.getGroup("replica"), world);
    await current(pr, mesh, part);
    const different = { meshDimNames: [rank === 7 ? "b" : "a"] };
    const error = await pr.initDeviceMesh("cpu", [8], different).catch((found) => found);
    assert.equal(mesh.getRank(), rank);
    return { mesh, part: part.mesh, flat: flat.mesh, sum, kind: error.kind, told: error.message };
  });
  assert.throws(() => mesh.getRank(), { kind: "NotInitialized" });
  return found;
}

/** Whether the current mesh follows tasks. */
async function current(pr, mesh, part) {
  assert.throws(() => pr.currentDeviceMesh(), { kind: "InvalidArgument" });
  const task = (own) => pr.withDeviceMesh(own, async () => {
    for (let step = 0; step < 3; step += 1) {
      await turn();
      assert.equal(pr.currentDeviceMesh(), own);
    }
    return own;
  });
  assert.deepEqual(await Promise.all([task(mesh), task(part)]), [mesh, part]);
  assert.throws(() => pr.withDeviceMesh({}, () => {}), { kind: "InvalidType" });
}
