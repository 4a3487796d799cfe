// Functions of the program as reduction operators: which number each has for the native half, and
// how arrays of all ranks are combined. Knows nothing of operations.

import { FUNCTIONS } from "../generated/constants.js";
import { InvalidArgumentError, InvalidTypeError } from "../generated/errors.js";
import { native } from "./native.js";
import { VIEWS } from "./tensors.js";

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
