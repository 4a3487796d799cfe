// The package has everything that the IDL defines.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import * as polyrank from "polyrank";

import { absent } from "../../tests/javascript/definitions.mjs";

async function declarations() {
  const files = ["../index.d.ts", "../js/runtime/types.d.ts", "../js/runtime/backends.d.ts"];
  const texts = files.map((file) => readFile(new URL(file, import.meta.url), "utf8"));
  return (await Promise.all(texts)).join("\n");
}

test("every definition of the IDL is in the package", async () => {
  const { missing, count } = await absent(polyrank, await declarations(), "node");
  assert.deepEqual(missing, []);
  assert.ok(count > 400, `${count} definitions`);
});

test("what is not there is found", async () => {
  const { Work, ...rest } = polyrank;
  const declared = (await declarations()).replace("reduceOp?", "other?");
  const { missing } = await absent(rest, declared, "node");
  assert.ok(missing.includes("Work: Work") && missing.includes("Work.wait: Work.wait"));
  assert.ok(missing.includes("AllreduceOptions.reduce_op: AllreduceOptions.reduceOp"), missing);
  assert.equal(typeof Work, "function");
});
