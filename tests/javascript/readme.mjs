// The programs of a README, which are run as its reader would run them: a block whose first line is
// a comment with a file's name is that file; a block of shell lines is run in the folder of the
// files; the text behind it is what it prints. Knows no program.

import { execFile } from "node:child_process";
import { mkdtemp, mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";

const LIMIT_MS = 120_000;

/** The fenced blocks of a README, in order: their language and their text. */
export async function blocks(readme) {
  const text = await readFile(readme, "utf8");
  const fences = text.matchAll(/^```(\w+)\n(.*?)^```$/gms);
  return [...fences].map(([, language, body]) => ({ language, body }));
}

/** The files among blocks: name and text. */
export function files(all) {
  const named = all.map(({ body }) => [body.match(/^(?:\/\/|#|<!--) ([\w.]+\.\w+)/)?.[1], body]);
  return named.filter(([name]) => name !== undefined);
}

/** The shell lines that are followed by what they print: `{ line, prints }`. */
export function runs(all) {
  const found = [];
  all.forEach(({ language, body }, at) => {
    const next = all[at + 1];
    if (language !== "sh" || next?.language !== "text") return;
    found.push({ line: body.trim(), prints: next.body.trim().split("\n") });
  });
  return found;
}

/** A folder with the files in it, where `packages`, by name, can be imported, and `programs`, by
 * name, are found. */
export async function folderOf(all, packages, programs) {
  const folder = await mkdtemp(join(tmpdir(), "polyrank-readme-"));
  await mkdir(join(folder, "node_modules"));
  await mkdir(join(folder, "bin"));
  for (const [name, path] of Object.entries(packages)) {
    await symlink(path, join(folder, "node_modules", name));
  }
  for (const [name, path] of Object.entries(programs)) {
    // Not a link: interpreters look beside the path that they were called by.
    await writeFile(join(folder, "bin", name), `#!/bin/sh\nexec '${path}' "$@"\n`, { mode: 0o755 });
  }
  for (const [name, body] of files(all)) await writeFile(join(folder, name), body);
  return { folder, remove: () => rm(folder, { recursive: true }) };
}

/** What a line prints in a folder, sorted, as ranks print when they are ready. */
export async function printed(folder, line) {
  const path = [join(folder, "bin"), process.env.PATH].join(delimiter);
  const options = { cwd: folder, env: { ...process.env, PATH: path }, timeout: LIMIT_MS };
  const { stdout } = await promisify(execFile)("sh", ["-ec", line], options);
  return stdout.trim().split("\n").sort();
}
