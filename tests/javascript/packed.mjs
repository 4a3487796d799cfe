// What npm would publish of a package.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** The paths of all files of the package in the folder `url`, as npm packs it. */
export async function packed(url) {
  const words = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const { stdout } = await promisify(execFile)("npm", words, { cwd: fileURLToPath(url) });
  const [{ files }] = Object.values(JSON.parse(stdout));
  return new Set(files.map(({ path }) => path));
}
