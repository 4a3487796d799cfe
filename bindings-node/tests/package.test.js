// The package as it is published: its files, and what the registry shows of it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { expectPublishable } from "../../tests/javascript/packed.mjs";

const root = new URL("../", import.meta.url);

test("the package has its native half, its licences and all that it exports", async () => {
  const files = await expectPublishable(root);
  for (const file of ["polyrank.node", "index.d.ts", "js/index.js", "js/generated/index.js"]) {
    assert.ok(files.has(file), file);
  }
});

test("the package says where its native half runs", async () => {
  const { os, cpu, libc, bin } = JSON.parse(await readFile(new URL("package.json", root), "utf8"));
  assert.deepEqual({ os, cpu, libc }, { os: ["linux"], cpu: ["x64"], libc: ["glibc"] });
  const readme = await readFile(new URL("README.md", root), "utf8");
  assert.match(readme, /on Linux \(x86-64, glibc\)/);
  assert.deepEqual(bin, { polyrank: "js/command.js" });
});

test("programs for torch.distributed find its names at the same place", async () => {
  const [whole, distributed] = await Promise.all([
    import("polyrank"),
    import("polyrank/distributed"),
  ]);
  assert.deepEqual(Object.keys(distributed), Object.keys(whole));
  assert.equal(distributed.allReduce, whole.allReduce);
});
