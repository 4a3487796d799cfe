// The declarations and the package: every declared name exists when the program runs, and the other
// way round; every declaration is documented; both packages have the same ones; the compiler agrees
// with the calls that are right and those that are wrong.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { packed } from "../../../tests/javascript/packed.mjs";
import { standIn } from "./standin.js";

const { pr } = await standIn();
const root = new URL("../../", import.meta.url);
const generated = await readFile(new URL("index.d.ts", root), "utf8");
const written = ["types", "meshes", "backends", "breakpoint"].map((name) => {
  return new URL(`js/runtime/${name}.d.ts`, root);
});
const texts = await Promise.all(written.map((file) => readFile(file, "utf8")));
const text = generated + texts.join("");
const declared = declarations(text);
/** Entries of their own, which Node alone has. */
const apart = await Promise.all(
  ["log", "spawn"].map((name) => readFile(new URL(`js/${name}.d.ts`, root), "utf8")),
);

/** Properties that instances have of themselves, not of their class. */
const INSTANCES = {
  P2POp: [new pr.P2POp(pr.isend, new Uint8Array(1), 1, { group: pr.NON_GROUP_MEMBER })],
  ReduceOp: [pr.premulSum(2), pr.ReduceOp.custom((one) => one)],
};

/** What every class and function has. */
const EVERYWHERE = new Set(["constructor", "length", "name", "prototype", "toString"]);

test("every declared name is there, and every name is declared", () => {
  const values = [...declared.values()].filter(({ kind }) => !/interface|type/.test(kind));
  const names = new Set(values.map(({ name }) => name));
  assert.deepEqual([...names].sort(), Object.keys(pr).sort());
  for (const { name, kind } of values) {
    const expected = kind === "class" || kind === "function" ? "function" : typeof pr[name];
    assert.equal(typeof pr[name], expected, name);
  }
});

test("every declared member is there, and every member is declared", () => {
  const classes = [...declared.values()].filter(({ kind }) => kind === "class");
  assert.ok(classes.length > 40, `${classes.length} classes`);
  for (const { name, members, base } of classes) {
    const made = pr[name];
    const parent = base === "Error" ? Error : pr[base?.replace(/^Package/, "")];
    if (base !== null) assert.ok(made.prototype instanceof parent, name);
    // Fields of errors come with each error.
    if (name.endsWith("Error")) continue;
    const objects = INSTANCES[name] ?? [made.prototype];
    for (const { name: member, isStatic } of members) {
      const isThere = (isStatic ? [made] : objects).some((object) => member in object);
      assert.ok(isThere, `${name}.${member} is declared`);
    }
    const known = new Set(members.map((member) => member.name));
    const own = [made.prototype, made].flatMap((object) => Object.getOwnPropertyNames(object));
    for (const member of own) {
      if (EVERYWHERE.has(member)) continue;
      assert.ok(known.has(member), `${name}.${member} is there, but not declared`);
    }
  }
});

test("everything is documented", () => {
  const lines = (text + apart.join("")).split("\n");
  const undocumented = lines.filter((line, index) => {
    const isMember = /^  (static |readonly )*[\w[].*[;{]$/.test(line);
    const isDeclaration = isMember || /^export \w/.test(line);
    const isHidden = /constructor\(\);$/.test(line);
    const isArgument = /^  options\?: /.test(line);
    if (!isDeclaration || isHidden || isArgument) return false;
    return !/\*\/$/.test(lines[index - 1]);
  });
  assert.deepEqual(undocumented, []);
});

test("both packages have the same declarations and the same generated layer", async () => {
  const other = new URL("../bindings-wasm/", root);
  assert.equal(await readFile(new URL("index.d.ts", other), "utf8"), generated);
  const files = await readdir(new URL("js/generated/", root));
  assert.deepEqual(await readdir(new URL("js/generated/", other)), files);
  for (const file of files) {
    const of = (package_) => readFile(new URL(`js/generated/${file}`, package_), "utf8");
    assert.equal(await of(other), await of(root), file);
  }
});

test("the package has everything that it imports", async () => {
  const files = await packed(root);
  const runtime = await readdir(new URL("js/runtime/", root));
  assert.ok(runtime.length > 15, `${runtime.length} files`);
  for (const file of runtime) assert.ok(files.has(`js/runtime/${file}`), file);
  for (const file of ["index.d.ts", "js/index.js", "js/work.js", "js/generated/index.js"]) {
    assert.ok(files.has(file), file);
  }
});

test("the packages depend on the same things", async () => {
  const [node, web] = await Promise.all(
    ["package.json", "../bindings-wasm/package.json"].map(async (path) => {
      return JSON.parse(await readFile(new URL(path, root), "utf8"));
    }),
  );
  assert.deepEqual(web.dependencies, node.dependencies);
  assert.equal(web.version, node.version);
  // A browser's package draws schedules and has Workers, too: from entries of their own.
  const { "./drawing": _drawing, "./workers": _workers, ...same } = web.exports;
  // Node starts ranks; a browser does not.
  const { "./spawn": _spawn, ...shared } = node.exports;
  assert.deepEqual(same, shared);
});

test("the compiler takes what is right and refuses what is wrong", async (context) => {
  const require = createRequire(import.meta.url);
  const compiler = require.resolve("typescript/package.json").replace("package.json", "bin/tsc");
  for (const project of ["tsconfig.json", "tsconfig.dom.json"]) {
    await context.test(project, async () => {
      const path = fileURLToPath(new URL(`tests/types/${project}`, root));
      const compiled = promisify(execFile)(process.execPath, [compiler, "--project", path]);
      await compiled.catch((error) => assert.fail(error.stdout || error.message));
    });
  }
});

/** The exported declarations of a text as the generator writes it: one a line, members indented. */
function declarations(text) {
  const found = new Map();
  let open = null;
  for (const line of text.split("\n")) {
    const exported = /^export (?:declare |abstract )?(class|function|const|interface|type) (\w+)/;
    const top = exported.exec(line);
    if (top !== null) {
      const [, kind, name] = top;
      // A class that programs extend: its members are those of the interface before it.
      if (line === `export const ${name}: typeof Own${name};`) {
        found.get(name).kind = "class";
        continue;
      }
      const base = /\bextends (\w+)[ <{]/.exec(line.replace(/<[^{]*>/, ""))?.[1] ?? null;
      open = { kind, name, base, members: [] };
      // A value may have the name of a type.
      const isFirst = !found.has(name) || /interface|type/.test(found.get(name).kind);
      if (isFirst) found.set(name, open);
      continue;
    }
    const member = /^  (static )?(?:readonly )?(?:static )?(?:readonly )?(\w+)\??[(<:]/.exec(line);
    const isMember = member !== null && member[2] !== "constructor";
    if (open !== null && isMember) {
      open.members.push({ name: member[2], isStatic: line.trimStart().startsWith("static ") });
    }
  }
  return found;
}
