// What handwritten calls take, checked by name and by type, as the core checks it for the others:
// a misspelt option, or another value in the place of the options, is told and not passed over.
// Knows no call.

import { InvalidTypeError } from "../generated/errors.js";
import { typeName } from "./views.js";

/** Types of options: what messages call them, and which values they have. */
export const BOOLEAN = ["boolean", (value) => typeof value === "boolean"];
export const NUMBER = ["number", (value) => typeof value === "number"];
export const DURATION = ["a number of milliseconds", isDuration];
/** What the call itself looks at. */
export const ANYTHING = ["anything", () => true];

/** The options of a call: `given`, or none. `types` has the type of each, by its name; what is
 * undefined or null was not given. */
export function optionsOf(called, given, types) {
  if (given === undefined || given === null) return {};
  const refuse = (text) => {
    throw new InvalidTypeError(`${text}; there are ${Object.keys(types).join(", ")}`);
  };
  if (!isPlain(given)) {
    refuse(`${called}(): 'options' must be an object with options, not ${told(given)}`);
  }
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(types, name)) refuse(`${called}(): there is no argument '${name}'`);
    const [[expected, fits], value] = [types[name], given[name]];
    if (value === undefined || value === null || fits(value)) continue;
    throw new InvalidTypeError(`${called}(): '${name}' must be ${expected}, not ${told(value)}`);
  }
  return given;
}

/** Refuses more arguments than a call takes, which are `most`; `count` were given. */
export function expectAtMost(most, called, count) {
  if (count <= most) return;
  const limit = most === 0 ? "no arguments" : `at most ${most} argument${most === 1 ? "" : "s"}`;
  throw new InvalidTypeError(`${called}(): it takes ${limit}, not ${count}`);
}

/** Whether `value` is an object that is nothing but its properties, of whichever realm. */
export function isPlain(value) {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** What came, as messages say it. */
export function told(value) {
  return typeof value === "number" ? `${value}` : typeName(value);
}

function isDuration(value) {
  return typeof value === "number" || typeof value === "bigint";
}
