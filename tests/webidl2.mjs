// Reads every file of idl/ with webidl2, the W3C's own parser: editors and other tools must be able
// to read the promise too. Knows nothing of polyrank's own reader or of its attributes' meaning.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "webidl2";

const folder = fileURLToPath(new URL("../idl/", import.meta.url));
const names = readdirSync(folder).filter((name) => name.endsWith(".webidl")).sort();
let passed = 0;
let failed = 0;
for (const name of names) {
  try {
    const text = readFileSync(join(folder, name), "utf8");
    const definitions = parse(text, { sourceName: `idl/${name}` });
    console.log(`idl/${name}: ${definitions.length} definitions`);
    passed += 1;
  } catch (error) {
    console.error(error.message);
    failed += 1;
  }
}
if (names.length === 0) {
  console.error("idl/ holds no .webidl file");
  failed += 1;
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
