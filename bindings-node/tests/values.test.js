// The values that the native half reads: the suite that browsers run, too.

import test from "node:test";

import { values } from "../../bindings-wasm/tests/cases/values.mjs";
import { native } from "../js/runtime/native.js";
import * as pr from "../js/index.js";

for (const [name, run] of Object.entries(values)) {
  test(name, () => run(pr, native));
}
