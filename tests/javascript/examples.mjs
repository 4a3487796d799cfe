// The JavaScript and TypeScript examples of the READMEs and of the site, as programs. Knows no
// example by name.

import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { ROOT } from "./server.mjs";

const READMES = ["README.md", "bindings-node/README.md", "bindings-wasm/README.md"];

/** What examples mean that begin in the middle, by the names that they use. */
const GIVEN = {
  group: "const group = pr.defaultGroup();",
  gradient: "const gradient = new Float32Array(1000).fill(1);",
  gradients: 'const gradients = pr.alloc("f32", [4, 4]);',
  batches: "const batches = [1, 2, 3];",
  backward: `const backward = (batch: number, into: pr.Tensor<Float32Array>): void => {
  into.data.fill(batch);
};`,
};

/** One example: where it stands, its text, and the whole program that it is or is a part of. */
export class Example {
  constructor(path, line, body) {
    this.place = `${path}:${line}`;
    this.file = `${path.replaceAll(/[/.]/g, "_")}_${line}`;
    this.body = body;
    /** A file that a line of its README runs, as the tests of the packages do. */
    this.isNamed = /^\/\/ [\w.]+\.\w+\n/.test(body);
    this.isWhole = this.isNamed || /^(import \* as pr from|await pr\.initProcessGroup)/m.test(body);
    this.isOfBrowser = /["']polyrank-web["']/.test(body);
    this.isOfDevice = /CudaTensor/.test(body);
  }

  /** The example between what comes before it and what follows it, if it begins in the middle. */
  program() {
    if (this.isWhole) return this.body;
    const names = Object.keys(GIVEN).filter((name) => this.#uses(name));
    return [
      'import * as pr from "polyrank";',
      "await pr.initProcessGroup();",
      ...names.map((name) => GIVEN[name]),
      this.body,
      "await pr.destroyProcessGroup();",
      "",
    ].join("\n");
  }

  #uses(name) {
    const isUsed = new RegExp(`\\b${name}\\b`).test(this.body);
    return isUsed && !new RegExp(`\\b(const|let|function) ${name}\\b`).test(this.body);
  }
}

/** All examples, in the order of the pages. */
export async function examples() {
  const site = await readdir(join(ROOT, "site"), { recursive: true });
  const isPage = (path) => path.endsWith(".md") && !path.includes("node_modules");
  // The reference is generated, and has signatures, not examples.
  const pages = site.filter((path) => isPage(path) && !path.startsWith("reference/"));
  const found = [];
  for (const path of [...READMES, ...pages.sort().map((page) => `site/${page}`)]) {
    const text = await readFile(join(ROOT, path), "utf8");
    for (const match of text.matchAll(/^ *```(?:js|ts)\b[^\n]*\n(.*?)^ *```$/gms)) {
      const line = text.slice(0, match.index).split("\n").length;
      found.push(new Example(path, line, match[1]));
    }
  }
  return found;
}

/** A folder in which both packages and Node's types are found. */
export async function workshop() {
  const folder = await mkdtemp(join(tmpdir(), "polyrank-examples-"));
  const modules = join(folder, "node_modules");
  await mkdir(join(modules, "@types"), { recursive: true });
  await symlink(join(ROOT, "bindings-node"), join(modules, "polyrank"));
  await symlink(join(ROOT, "bindings-wasm"), join(modules, "polyrank-web"));
  const site = join(ROOT, "site/node_modules");
  await symlink(join(site, "@types/node"), join(modules, "@types/node"));
  await symlink(join(site, "undici-types"), join(modules, "undici-types"));
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({
    compilerOptions: {
      target: "es2023",
      module: "nodenext",
      lib: ["esnext", "dom", "dom.iterable"],
      types: ["node"],
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      moduleDetection: "force",
      outDir: "out",
    },
    include: ["*.ts"],
  }));
  return { folder, remove: () => rm(folder, { recursive: true }) };
}
