// Functions of the program as reduction operators: which number each has for the native half, and
// how arrays of all ranks are combined. Knows nothing of operations.

import { FUNCTIONS } from "../generated/constants.js";
import { InvalidTypeError } from "../generated/errors.js";
import { native } from "./native.js";
import { VIEWS } from "./tensors.js";
import { classOf, isTypedArray, typeName } from "./views.js";

/** The operators of functions, by the numbers that tasks name them with. A function may refer to
 * its operator: only who has the operator, or an operation in flight, keeps either. */
const operators = new Map();

/** The native half's numbers of operators, which it keeps until they are collected. */
const numbers = new WeakMap();
const collected = new FinalizationRegistry(({ id, number }) => {
  operators.delete(id);
  native.dropReduction(number);
});

let last = 0;

/** The native half's number of a custom operator. */
export function numberOf(operator) {
  let number = numbers.get(operator);
  if (number === undefined) {
    if (!FUNCTIONS.has(operator)) {
      throw new InvalidTypeError("ReduceOp.CUSTOM needs its function; use ReduceOp.custom(fn)");
    }
    const id = ++last;
    operators.set(id, new WeakRef(operator));
    number = native.makeReduction(id);
    numbers.set(operator, number);
    collected.register(operator, { id, number });
  }
  return number;
}

/** What the arrays of all ranks become, which are bytes of elements of this type. */
export function combine(id, dtype, inputs) {
  const fn = FUNCTIONS.get(operators.get(id).deref());
  const arrays = inputs.map((bytes) => new VIEWS[dtype](bytes.buffer));
  return arrays.reduce((lower, upper) => operand(fn(lower, upper), upper));
}

/** A function returned something else than an array like its operands. */
export class WrongResult extends Error {}

/** What a function returned, as an array like its operands. */
function operand(result, like) {
  const expected = `where an array of ${like.length} elements was expected`;
  if (typeof result?.then === "function") {
    // Nobody waits for it, or hears how it ends.
    Promise.resolve(result).catch(() => {});
    throw new WrongResult(`it returned a promise ${expected}: it must not be async`);
  }
  if (!Array.isArray(result) && !isTypedArray(result)) {
    throw new WrongResult(`it returned ${typeName(result)} ${expected}`);
  }
  if (result.length !== like.length) {
    const [came, wanted] = [result.length, like.length];
    throw new WrongResult(`it returned ${came} elements where ${wanted} were expected`);
  }
  if (result.constructor === like.constructor) return result;
  const wanted = classOf(like);
  if (isTypedArray(result) && isFloat(classOf(result)) && !isFloat(wanted)) {
    throw new WrongResult(`it returned a ${classOf(result)} where a ${wanted} was expected`);
  }
  return like.constructor.from(result, (element, place) => elementOf(element, place, wanted));
}

/** An element that a function returned, as one of an array of this class. */
function elementOf(element, place, wanted) {
  const fits = RANGES[wanted] ?? null;
  const isOfNumbers = typeof element === "number" || typeof element === "boolean";
  const isWhole = isOfNumbers ? Number.isInteger(Number(element)) : typeof element === "bigint";
  if (fits === null && (isOfNumbers || isWhole)) return Number(element);
  if (fits !== null && isWhole && fits(BigInt(element))) {
    return wanted.startsWith("Big") ? BigInt(element) : Number(element);
  }
  const came = isOfNumbers || isWhole ? String(element) : typeName(element);
  const what = `element ${place} of what it returned is ${came}`;
  throw new WrongResult(`${what}, which no ${wanted} holds`);
}

const signed = (bits) => (whole) => BigInt.asIntN(bits, whole) === whole;
const unsigned = (bits) => (whole) => BigInt.asUintN(bits, whole) === whole;

/** Which whole numbers arrays hold that hold no others, by their classes. */
const RANGES = {
  Int8Array: signed(8),
  Uint8Array: unsigned(8),
  Int16Array: signed(16),
  Uint16Array: unsigned(16),
  Int32Array: signed(32),
  Uint32Array: unsigned(32),
  BigInt64Array: signed(64),
  BigUint64Array: unsigned(64),
};

function isFloat(name) {
  return name.startsWith("Float");
}
