// What npm would publish of a package.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** The paths of all files of the package in the folder `url`, as npm packs it. */
export async function packed(url) {
  const words = ["pack", "--dry-run", "--json", "--silent"];
  const { stdout } = await promisify(execFile)("npm", words, { cwd: fileURLToPath(url) });
  const [{ files }] = Object.values(JSON.parse(stdout));
  return new Set(files.map(({ path }) => path));
}

/** Fails if the package lacks what users of the registry expect; returns its files. */
export async function expectPublishable(url) {
  const files = await packed(url);
  for (const file of ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]) {
    assert.ok(files.has(file), `${file} is not in the package`);
  }
  const description = JSON.parse(await readFile(new URL("package.json", url), "utf8"));
  const links = ["homepage", "repository", "bugs"];
  for (const field of ["description", "keywords", ...links, "license", "engines"]) {
    assert.ok(description[field], `package.json has no ${field}`);
  }
  const { exports, types, bin = {} } = description;
  const entries = Object.values(exports).flatMap((entry) => Object.values(entry));
  const named = entries.filter((entry) => entry.startsWith("./"));
  for (const entry of [...named, types, ...Object.values(bin)]) {
    assert.ok(files.has(entry.replace(/^\.\//, "")), `${entry} is not in the package`);
  }
  return files;
}
