// What of the IDL's definitions a package of JavaScript lacks, by the generated list of them: in
// the package as it runs, and, of what is only a type, in its declarations.

import { readFile } from "node:fs/promises";

const LIST = new URL("../generated/definitions.json", import.meta.url);

/**
 * The names that the list has and the package has not.
 *
 * @param column - `node` or `browser`.
 */
export async function absent(module, declarations, column) {
  const all = JSON.parse(await readFile(LIST, "utf8"));
  const missing = [];
  for (const definition of all.filter((it) => it[column] !== null)) {
    for (const name of [definition[column], ...definition.javascript_aliases]) {
      if (has(module, declarations, definition.kind, name)) continue;
      missing.push(`${definition.name}: ${name}`);
    }
  }
  return { missing, count: all.length };
}

function has(module, declarations, kind, name) {
  const [owner, member] = name.split(".");
  switch (kind) {
    case "texts":
      return declarations.includes(`type ${name} =`);
    case "text":
      return declarations.includes(`"${member}"`);
    case "options":
    case "record":
    case "result":
      return bodyOf(declarations, name) !== undefined;
    case "option":
    case "field":
    case "part":
    case "error_field":
      return isDeclared(declarations, owner, member);
    default:
      if (isThere(module, owner, member)) return true;
      // What objects get when they are made.
      return kind === "attribute" && isDeclared(declarations, owner, member);
  }
}

function isThere(module, owner, member) {
  const found = module[owner];
  if (found === undefined || member === undefined) return found !== undefined;
  return member in found || member in (found.prototype ?? {});
}

/** Whether objects of a class, or options, have it. */
function isDeclared(declarations, owner, member) {
  return new RegExp(`^  (readonly )?${member}\\??:`, "m").test(bodyOf(declarations, owner) ?? "");
}

/** What stands in the braces of a class or an interface. */
function bodyOf(declarations, name) {
  const start = declarations.search(new RegExp(`^export (class|interface) ${name}[ <]`, "m"));
  return start < 0 ? undefined : declarations.slice(start, declarations.indexOf("\n}", start));
}
