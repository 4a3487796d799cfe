// The programs of the README do what it says.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { blocks, files, folderOf, printed, runs } from "../../tests/javascript/readme.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const TARGET = process.env.POLYRANK_TARGET ?? path("../../target/debug");
const PYTHON = process.env.POLYRANK_PYTHON;

const all = await blocks(path("../README.md"));
let place;

before(async () => {
  assert.ok(existsSync(`${TARGET}/polyrank`), "the launcher is built: cargo build -p polyrank-cli");
  const programs = { polyrank: `${TARGET}/polyrank`, node: process.execPath };
  if (PYTHON !== undefined) programs.python = PYTHON;
  place = await folderOf(all, { polyrank: path("..") }, programs);
});

after(() => place?.remove());

test("every file of the README is run by a line of it", () => {
  const lines = runs(all).map(({ line }) => line).join("\n");
  const program = (name) => all.some(({ body }) => body.includes(`"./${name}"`));
  for (const [name] of files(all)) assert.ok(lines.includes(name) || program(name), name);
});

for (const { line, prints } of runs(all)) {
  const needsPython = / python /.test(line) && PYTHON === undefined;
  const skip = needsPython && "POLYRANK_PYTHON names no interpreter that has polyrank";
  test(line, { skip }, async () => {
    assert.deepEqual(await printed(place.folder, line), [...prints].sort());
  });
}
