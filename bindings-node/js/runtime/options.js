// What handwritten calls take, checked by name and by type, as the core checks it for the others:
// a misspelt option, or another value in the place of the options, is told and not passed over.
// Knows no call.

import { InvalidTypeError } from "../generated/errors.js";
import { typeName } from "./views.js";

/** Types of options: what messages call them, and which values they have. What is undefined or null
 * was not given. */
export const BOOLEAN = ["boolean", optional("boolean")];
export const STRING = ["a string", optional("string")];
export const NUMBER = ["number", optional("number")];
export const DURATION = ["a number of milliseconds", optional("number", "bigint")];
/** What the call itself looks at. */
export const ANYTHING = ["anything", () => true];

/** The options of a call: `given`, or none. `types` has the type of each, by its name. */
export function optionsOf(called, given, types) {
  if (given === undefined || given === null) return {};
  if (!isPlain(given)) {
    const text = `${called}(): 'options' must be an object with options, not ${told(given)}`;
    throw new InvalidTypeError(`${text}; there are ${namesOf(types)}`);
  }
  checkMembers(given, types, {
    unknown: (name) => `${called}(): there is no argument '${name}'`,
    member: (name) => `${called}(): '${name}'`,
  });
  return given;
}

/** Refuses members of `given` that `types` does not have, and values of another type than is there;
 * the `required` ones are looked at though they are missing. `unknown` and `member` say of which
 * call they are. A type may have a third part: how it tells what came. */
export function checkMembers(given, types, { unknown, member, required = [] }) {
  for (const name of new Set([...required, ...Object.keys(given)])) {
    if (!Object.hasOwn(types, name)) {
      throw new InvalidTypeError(`${unknown(name)}; there are ${namesOf(types)}`);
    }
    const [[expected, fits, tell = told], value] = [types[name], given[name]];
    if (fits(value)) continue;
    throw new InvalidTypeError(`${member(name)} must be ${expected}, not ${tell(value)}`);
  }
}

/** Refuses more arguments than a call takes, which are `most`; `count` were given. */
export function expectAtMost(most, called, count) {
  if (count <= most) return;
  const limit = most === 0 ? "no arguments" : `at most ${most} argument${most === 1 ? "" : "s"}`;
  throw new InvalidTypeError(`${called}(): it takes ${limit}, not ${count}`);
}

/** Refuses what is not a function, as argument `name` of a call. */
export function expectFunction(called, name, given) {
  if (typeof given === "function") return;
  throw new InvalidTypeError(`${called}(): '${name}' must be a function, not ${told(given)}`);
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

function optional(...types) {
  return (value) => value === undefined || value === null || types.includes(typeof value);
}

function namesOf(types) {
  return Object.keys(types).join(", ");
}
