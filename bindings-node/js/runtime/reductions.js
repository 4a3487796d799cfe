// Functions of the program as reduction operators: which number each has for the native half, and
// how arrays of all ranks are combined. Knows nothing of operations.

import { FUNCTIONS } from "../generated/constants.js";
import { InvalidArgumentError, InvalidTypeError } from "../generated/errors.js";
import { native } from "./native.js";
import { VIEWS } from "./tensors.js";

/** Functions by the numbers that tasks name them with. */
const functions = new Map();

/** The native half's numbers of operators, which it keeps until they are collected. */
const operators = new WeakMap();
const collected = new FinalizationRegistry((number) => native.dropReduction(number));

let last = 0;

/** The native half's number of a custom operator. */
export function numberOf(operator) {
  let number = operators.get(operator);
  if (number === undefined) {
    const fn = FUNCTIONS.get(operator);
    if (fn === undefined) {
      throw new InvalidTypeError("ReduceOp.CUSTOM needs its function; use ReduceOp.custom(fn)");
    }
    last += 1;
    functions.set(last, fn);
    number = native.makeReduction(last);
    operators.set(operator, number);
    collected.register(operator, number);
  }
  return number;
}

/** Forgets a function that nothing will call. */
export function forgetFunction(id) {
  functions.delete(id);
}

/** What the arrays of all ranks become, which are bytes of elements of this type. */
export function combine(id, dtype, inputs) {
  const fn = functions.get(id);
  const arrays = inputs.map((bytes) => new VIEWS[dtype](bytes.buffer));
  return arrays.reduce((lower, upper) => operand(fn(lower, upper), upper));
}

/** What a function returned, as an array like its operands. */
function operand(result, like) {
  if (result?.constructor === like.constructor && result.length === like.length) return result;
  if (typeof result?.then === "function") {
    throw new InvalidTypeError("a reduction function must not return a promise");
  }
  if (typeof result?.length !== "number") {
    throw new InvalidTypeError(
      `a reduction function must return an array, not ${result === null ? null : typeof result}`,
    );
  }
  if (result.length !== like.length) {
    throw new InvalidArgumentError(
      `a reduction function returned ${result.length} elements, not ${like.length}`,
    );
  }
  return like.constructor.from(result);
}
