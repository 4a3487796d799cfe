// Short calls: a collective on one array, in place, in one call of the native half, which returns
// its result if it is over by then. Anything unusual about the call, or about what runs beside it,
// is declined. Only Node has them: in a browser no operation is done in the call that issues it.

import { ReduceOp } from "../generated/constants.js";
import { idlName } from "./arguments.js";
import { HANDLE } from "./handles.js";
import { isNothingInUse } from "./memory_in_use.js";
import { native } from "./native.js";
import { homeOf } from "./owned.js";
import { isIdle } from "./queues.js";
import { byteLengthOf, bytesOf, isTypedArray } from "./views.js";

/** Longer arrays in memory of polyrank take the long way, on which they are not copied; for shorter
 * ones, a copy costs less. */
const COPIED_BYTES = 16 * 1024;

/** The native half's number for "no operator is given". */
const NO_OPERATOR = -1;

/** The numbers of methods, by their keys; -1: they have no short calls. */
const methods = new Map();

/** The name of each group, and the limit of its operations, by the number of the group. A short
 * call that the native half knows another limit of is declined, so that this one is learnt anew. */
const groups = new Map();
const MAX_GROUPS = 1000;
const UNKNOWN = { name: null, timeoutMs: NaN };

/** An operation that was done when its call returned. */
export class DoneOperation {
  state = "ended";
  failure = null;

  constructor(method, sequence, group) {
    this.native = new DoneWork(method, sequence, group);
  }

  /** Less than the native half waits for an operation in the call that issues it. */
  milliseconds() {
    return 0;
  }

  poll() {}
  forget() {}
  abandon() {}

  whenEnded(listener) {
    listener(null);
  }
}

class DoneWork {
  #method;
  outputs = [0];

  constructor(method, sequence, { name, timeoutMs }) {
    this.#method = method;
    this.sequence = sequence;
    this.groupName = name;
    this.timeoutMs = timeoutMs;
  }

  get name() {
    return idlName(this.#method);
  }

  sourceRank() {
    return null;
  }
}

/** Tries a call of the method `spec` with these values: a `DoneOperation`, or the native half's
 * work, which continues; null: nothing happened, and the call takes the long way. `allowance` says
 * how many of so many bytes may be copied now. */
export function runShort(spec, self, values, allowance) {
  if (native.runShort === undefined || values.length === 0 || values.length > 2) return null;
  const [array] = values;
  if (!isTypedArray(array)) return null;
  if (!isIdle() || !isNothingInUse()) return null;
  const operator = values.length === 2 ? codeOf(values[1]) : NO_OPERATOR;
  const group = self === null ? 0 : self?.[HANDLE]?.id;
  const method = methodOf(spec.key);
  if (operator === null || group === undefined || method === -1) return null;
  const byteLength = byteLengthOf(array);
  if (byteLength > COPIED_BYTES && homeOf(bytesOf(array)) !== null) return null;
  const known = groups.get(group) ?? UNKNOWN;
  const maxCopied = allowance(byteLength);
  const outcome = native.runShort(group, method, array, operator, known.timeoutMs, maxCopied);
  if (outcome === null) learn(group);
  return typeof outcome === "number" ? new DoneOperation(spec.name, outcome, known) : outcome;
}

function learn(group) {
  // Programs that make groups in a loop must not fill the memory.
  if (groups.size >= MAX_GROUPS) groups.clear();
  const timeoutMs = native.shortTimeoutMs(group);
  groups.set(group, { name: native.shortGroupName(group), timeoutMs });
}

function methodOf(key) {
  let method = methods.get(key);
  if (method === undefined) methods.set(key, (method = native.shortMethod(key)));
  return method;
}

/** The number of an operator without a factor; null: it is none. */
function codeOf(operator) {
  return operator instanceof ReduceOp && operator.factor === undefined ? operator.value : null;
}
