// Meshes of ranks that are processes: layouts and sums come from arithmetic, parts from torch's
// documents.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios } from "./support/ranks.js";

const SCENARIOS = scenarios("meshes");
const range = (length) => Array.from({ length }, (_, index) => index);
const product = (lengths) => lengths.reduce((all, length) => all * length, 1);

const SHAPES = {
  1: [[1], [1, 1, 1]],
  2: [[2], [1, 2], [2, 1]],
  3: [[3], [3, 1], [2]],
  4: [[2, 2], [1, 4]],
  5: [[5], [2, 2], [1, 5, 1]],
  8: [[2, 4], [2, 2, 2], [7]],
};

/** What a rank finds in a mesh of this shape. */
function expected(shape, rank) {
  const total = product(shape);
  const meshDimNames = ["dp", "pp", "tp"].slice(0, shape.length);
  const steps = shape.map((_, dim) => product(shape.slice(dim + 1)));
  const coordinate = shape.map((length, dim) => Math.floor(rank / steps[dim]) % length);
  const lines = shape.map((size, dim) => {
    const ranks = range(size).map((at) => rank + (at - coordinate[dim]) * steps[dim]);
    const sum = ranks.reduce((all, other) => all + other + 0.5, 0);
    return { ranks, at: coordinate[dim], sum, size };
  });
  const isInside = rank < total;
  let mesh = range(total);
  for (const length of shape.slice(1).reverse()) {
    mesh = range(mesh.length / length).map((at) => mesh.slice(at * length, (at + 1) * length));
  }
  return {
    mesh,
    coordinate: isInside ? coordinate : null,
    deviceType: "cpu",
    meshDimNames,
    ndim: shape.length,
    shape,
    total,
    own: rank,
    lines: isInside ? lines : [],
  };
}

for (const [size, shapes] of Object.entries(SHAPES)) {
  test(`meshes of ${size} ranks`, async () => {
    const found = await onRanks(Number(size), SCENARIOS, "shapes", { argument: shapes });
    found.forEach((meshes, rank) => {
      assert.deepEqual(meshes, shapes.map((shape) => expected(shape, rank)));
    });
  });
}

test("ranks are given as arrays of any form", async () => {
  const found = await onRanks(4, SCENARIOS, "arrays");
  for (const { meshes, flat, backends } of found) {
    for (const mesh of meshes) assert.deepEqual(mesh, [[3, 1], [0, 2]]);
    assert.deepEqual(flat, [3, 1, 0, 2]);
    assert.deepEqual(backends, ["gloo", "gloo", "tcp", "gloo"]);
  }
});

test("parts, flattened dimensions, the current mesh, and ranks that disagree", async () => {
  const found = await onRanks(8, SCENARIOS, "parts");
  found.forEach(({ part, flat, sum, kind, told }, rank) => {
    const isFirst = [0, 1, 4, 5].includes(rank);
    assert.deepEqual(part, isFirst ? [[0, 1], [4, 5]] : [[2, 3], [6, 7]]);
    assert.deepEqual(flat, isFirst ? [0, 1, 4, 5] : [2, 3, 6, 7]);
    assert.equal(sum, isFirst ? 10 : 18);
    assert.equal(kind, "InvalidArgument");
    assert.match(told, /ranks \[0, 1, 2, 3, 4, 5, 6\] gave DeviceMesh.*=\['a'\]/);
    assert.match(told, /rank 7 gave DeviceMesh.*=\['b'\]/);
  });
});
