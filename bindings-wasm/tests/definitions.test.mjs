// The package has everything that the IDL defines.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import * as polyrank from "../js/index.js";

import { absent } from "../../tests/javascript/definitions.mjs";

async function declarations() {
  const files = ["../index.d.ts", "../js/runtime/types.d.ts", "../js/runtime/backends.d.ts"];
  const texts = files.map((file) => readFile(new URL(file, import.meta.url), "utf8"));
  return (await Promise.all(texts)).join("\n");
}

test("every definition of the IDL is in the package", async () => {
  const { missing, count } = await absent(polyrank, await declarations(), "browser");
  assert.deepEqual(missing, []);
  assert.ok(count > 400, `${count} definitions`);
});
