// The package as it is published: the layer that it shares with Node's package is in it.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

import { expectPublishable } from "../../tests/javascript/packed.mjs";

const root = new URL("../", import.meta.url);
const shared = new URL("../bindings-node/js/runtime/", root);

test("the package has everything that it imports", async () => {
  const files = await expectPublishable(root);
  const names = await readdir(shared);
  assert.ok(names.length > 15, `${names.length} files`);
  for (const name of names) {
    assert.ok(files.has(`js/runtime/${name}`), name);
    const [here, there] = [new URL("js/runtime/", root), shared].map((folder) => {
      return readFile(new URL(name, folder), "utf8");
    });
    assert.equal(await here, await there, `${name}: cargo xtask wasm takes it anew`);
  }
  const wasm = ["js/wasm/polyrank.js", "js/wasm/polyrank_bg.wasm"];
  for (const file of ["index.d.ts", "js/index.js", "js/generated/index.js", ...wasm]) {
    assert.ok(files.has(file), file);
  }
  assert.ok(!files.has("js/wasm/profile.txt"), "what the build notes for itself stays here");
});
