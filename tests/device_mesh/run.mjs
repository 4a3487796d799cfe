// A JavaScript rank that makes meshes with ranks of any language, in Node or in a browser.
//
// run.py is the same in Python, examples/device_mesh.rs in Rust; arithmetic says what is right.

const NAMES = ["dp", "pp", "tp"];

function check(isRight, what) {
  if (!isRight) throw new Error(`${what} is wrong`);
}

const same = (left, right) => JSON.stringify(left) === JSON.stringify(right);
const product = (lengths) => lengths.reduce((all, length) => all * length, 1);
const range = (length) => Array.from({ length }, (_, index) => index);

/** Whether the mesh is what its ranks say, and its groups reduce along its dimensions. */
async function checkMesh(mesh, rank, shape, ranks) {
  check(same(mesh.shape, shape) && same(mesh.mesh.flat(Infinity), ranks), `${mesh}`);
  const place = ranks.indexOf(rank);
  if (place < 0) {
    check(mesh.getCoordinate() === null, "the coordinate of a rank outside");
    return;
  }
  const groups = mesh.getAllGroups();
  for (const [dim, length] of shape.entries()) {
    const step = product(shape.slice(dim + 1));
    const index = Math.floor(place / step) % length;
    const line = range(length).map((at) => ranks[place + (at - index) * step]);
    const group = mesh.getGroup(dim);
    check(group === groups[dim] && same(group.ranks(), line), `the group along ${dim}`);
    check(mesh.getLocalRank(dim) === index && group.rank() === index, `the rank along ${dim}`);
    check(mesh.getCoordinate()[dim] === index, `the coordinate ${dim}`);
    const total = await group.allreduce(BigInt64Array.of(BigInt(rank + 1)));
    const expected = line.reduce((sum, other) => sum + other + 1, 0);
    check(Number(total[0]) === expected, `the sum along ${dim}`);
  }
}

/** Runs all; fails if something was not as it should be. */
export async function main(pr, here) {
  await pr.initProcessGroup({ ...here.init, timeout: 60_000 });
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const shapes = [[size], [1, size], [size, 1, 1]];
  if (size % 2 === 0) shapes.push([2, size / 2], [size / 2, 1, 2]);
  for (const shape of shapes) {
    const meshDimNames = NAMES.slice(0, shape.length);
    const mesh = await pr.initDeviceMesh("cpu", shape, { meshDimNames });
    await checkMesh(mesh, rank, shape, range(size));
    if (shape.length === 2) {
      const first = Math.floor(rank / shape[1]) * shape[1];
      await checkMesh(mesh.slice("pp"), rank, [shape[1]], range(shape[1]).map((at) => first + at));
      const whole = await mesh.flatten("all");
      await checkMesh(whole, rank, [size], range(size));
      check(mesh.slice("all").equals(whole), "what is flattened");
    }
    const options = { mesh: mesh.mesh, meshDimNames };
    const again = pr.DeviceMesh.fromGroup(mesh.getAllGroups(), "cpu", options);
    check(again.equals(mesh), "a mesh of groups");
  }
  const some = range(Math.max(size, 2) - 1).reverse();
  const line = Int32Array.from(some);
  for (const shape of [[some.length], [1, some.length]]) {
    const mesh = await pr.DeviceMesh.create("cpu", pr.tensor(line, { shape }));
    await checkMesh(mesh, rank, shape, some);
  }
  if (size > 1) {
    const meshDimNames = [rank === 0 ? "x" : "y"];
    const error = await pr.initDeviceMesh("cpu", [size], { meshDimNames }).catch((found) => found);
    const given = `rank 0 gave DeviceMesh('cpu', [${range(size).join(", ")}], `;
    const isTold = error.kind === "InvalidArgument" && error.message.includes(given);
    check(isTold && error.message.includes("=['y']"), `that meshes differ: ${error}`);
  }
  await pr.destroyProcessGroup();
  here.say(`${here.language} rank ${rank} of ${size}: meshes passed`);
  return 0;
}
