// Every class of error: made once, with all its fields, as the native half tells of errors.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";

import { asError } from "../../js/generated/errors.js";
import { standIn } from "./standin.js";

const { pr, native } = await standIn();
const declarations = await readFile(new URL("../../index.d.ts", import.meta.url), "utf8");

/** Each class that is declared with a kind: its name, the kind, the names of its fields. */
const declared = [...declarations.matchAll(/^export class (\w+Error) .*?^\}/gms)]
  .map(([body, name]) => ({
    name,
    kind: /readonly kind: "(\w+)"/.exec(body)?.[1],
    fields: [...body.matchAll(/readonly (\w+): /g)].map(([, field]) => field),
  }))
  .filter(({ kind }) => kind !== undefined);

const snakeCase = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

test("every class of error can be made with all its fields", () => {
  assert.ok(declared.length > 25, `${declared.length} classes`);
  for (const { name, kind, fields } of declared) {
    const own = fields.filter((field) => !["kind", "message", "seq"].includes(field));
    const told = Object.fromEntries(own.map((field) => [snakeCase(field), `its ${field}`]));
    const error = asError({ data: { kind, message: "what is wrong", fields: told } });
    assert.ok(error instanceof pr[name], name);
    assert.deepEqual([error.name, error.kind], [name, kind]);
    for (const field of own) assert.equal(error[field], `its ${field}`, `${name}.${field}`);
    if (own.length > 0) assert.equal(error.message, "what is wrong", name);
  }
});

test("what needs no fields is said in the names of JavaScript", () => {
  const said = (kind) => asError({ data: { kind, message: "init_process_group", fields: {} } });
  assert.match(said("NotInitialized").message, /make sure to call initProcessGroup\.$/);
  assert.match(said("AlreadyInitialized").message, /isInitialized\(\) .* destroyProcessGroup\(\)/);
});

test("a second call of initProcessGroup says the same as one after the first", async () => {
  const first = pr.initProcessGroup();
  const second = await pr.initProcessGroup().then(
    () => null,
    (error) => error,
  );
  await first.catch(() => {});
  assert.ok(second instanceof pr.AlreadyInitializedError, String(second));
  assert.equal(second.message, asError({ kind: "AlreadyInitialized" }).message);
  assert.match(second.message, /destroyProcessGroup\(\) leaves it/);
});

test("a name of no backend is refused in the words of the core", () => {
  const text = "Unknown backend type 'pigeon'; expected one of: tcp, gloo";
  native.answers.set("DISTRIBUTED_BACKEND_UNAVAILABLE_REASON", () => text);
  assert.equal(pr.parseBackend("TCP"), "tcp");
  assert.throws(() => pr.parseBackend("pigeon"), {
    name: "UnknownBackendError",
    message: text,
    backend: "pigeon",
    known: "tcp, gloo",
  });
});
