// Short calls: a collective or a message on one array or two, in one call of the native half, which
// returns its result if it is over by then. Anything unusual about the call, or about what runs
// beside it, is declined.

import { ReduceOp } from "../generated/constants.js";
import { idlName } from "./arguments.js";
import { HANDLE } from "./handles.js";
import { isNothingInUse } from "./memory_in_use.js";
import { native } from "./native.js";
import { isPlain } from "./options.js";
import { isIdle } from "./queues.js";
import { byteLengthOf, isTypedArray } from "./views.js";

/** Shorter arrays are copied, whoever has their memory: that costs less than anything else. Those
 * of a call of which one is longer are used in place if they lie in memory of polyrank. */
const COPIED_BYTES = 16 * 1024;

/** The native half's numbers for "no operator is given", and "no rank". */
const NO_OPERATOR = -1;
const NO_RANK = -1;

/** The numbers of methods with arguments of certain names, by their keys and those; -1: such calls
 * are not short. */
const methods = new Map();
/** The numbers of those that receive a message. */
const receivers = new Set();
/** Of those without such arguments, by their keys, with one array and with two. */
const plainMethods = [new Map(), new Map()];

/** The name of each group, and the limit of its operations, by the number of the group. A short
 * call that the native half knows another limit of is declined, so that this one is learnt anew. */
const groups = new Map();
const MAX_GROUPS = 1000;
const UNKNOWN = { name: null, timeoutMs: NaN };

/** An operation that was done when its call returned. */
export class DoneOperation {
  state = "ended";
  failure = null;

  constructor(nativeWork) {
    this.native = nativeWork;
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
  #source;

  constructor(method, sequence, outputs, { name, timeoutMs }, source) {
    this.#method = method;
    this.#source = source;
    this.outputs = outputs;
    this.sequence = sequence;
    this.groupName = name;
    this.timeoutMs = timeoutMs;
  }

  get name() {
    return idlName(this.#method);
  }

  sourceRank() {
    return this.#source;
  }
}

/** Tries a call of the method `spec` with these values: a `DoneOperation`, or the native half's
 * work, which continues; null: nothing happened, and the call takes the long way. `allowance` says
 * how many of so many bytes may be copied now. */
export function runShort(spec, self, values, allowance) {
  if (!isTypedArray(values[0])) return null;
  if (!isIdle() || !isNothingInUse()) return null;
  const arrays = arraysOf(values);
  const others = othersOf(spec, values, arrays.length);
  if (others === null) return null;
  const { operator, operatorName, rank, rankName } = others;
  const group = self === null ? others.group : self?.[HANDLE]?.id;
  if (group === undefined) return null;
  const method = methodOf(spec.key, arrays.length, operatorName, rankName);
  if (method === -1) return null;
  const known = groups.get(group) ?? UNKNOWN;
  const bytes = arrays.reduce((all, array) => all + byteLengthOf(array), 0);
  const [first, second = null] = arrays;
  const outcome = native.runShort(
    group, method, first, second, operator, rank, known.timeoutMs, allowance(bytes),
  );
  if (outcome === null) learn(group);
  if (typeof outcome !== "number") return outcome;
  const source = receivers.has(method) ? rank : null;
  const hasOutput = outcome >= 0 && spec.output !== null;
  const sequence = outcome < 0 ? -1 - outcome : outcome;
  const outputs = hasOutput ? [spec.output] : [];
  return new DoneOperation(new DoneWork(spec.name, sequence, outputs, known, source));
}

/** The arrays with which a call begins that has one at least: two at most. */
export function arraysOf(values) {
  return values.length > 1 && isTypedArray(values[1]) ? [values[0], values[1]] : [values[0]];
}

/** Whether the arrays of a short call are used in place where they lie in memory of polyrank. */
export function areInPlace(arrays) {
  return arrays.some((array) => byteLengthOf(array) > COPIED_BYTES);
}

/** No arguments beside the arrays. */
const NOTHING = {
  operator: NO_OPERATOR,
  operatorName: null,
  rank: NO_RANK,
  rankName: null,
  group: 0,
};

/** The arguments from the one of this number on: an operator, a rank, and the group of a function;
 * null: there are others. */
function othersOf(spec, values, from) {
  if (values.length === from) return NOTHING;
  const others = { ...NOTHING };
  for (let at = from; at < values.length; at += 1) {
    const value = values[at];
    if (take(others, value, POSITIONS[at])) continue;
    if (at + 1 < values.length || at < spec.required || !isPlain(value)) return null;
    const names = Object.keys(value);
    if (names.length === 0) return null;
    for (const name of names) {
      const given = value[name];
      if (name === spec.groupName && given?.[HANDLE]?.marked.typeName === "ProcessGroup") {
        others.group = given[HANDLE].id;
      } else if (!take(others, given, idlName(name))) {
        return null;
      }
    }
  }
  return others;
}

const POSITIONS = ["0", "1", "2", "3"];

/** Takes an argument of this name or position; whether it is one of a short call. */
function take(others, value, name) {
  if (name === undefined) return false;
  if (typeof value === "number") {
    if (others.rankName !== null || !(Number.isInteger(value) && value >= 0)) return false;
    if (value >= 2 ** 32) return false;
    others.rank = value;
    others.rankName = name;
    return true;
  }
  if (!(value instanceof ReduceOp) || value.factor !== undefined) return false;
  if (value.commute !== undefined) return false;
  if (others.operatorName !== null) return false;
  others.operator = value.value;
  others.operatorName = name;
  return true;
}

function learn(group) {
  // Programs that make groups in a loop must not fill the memory.
  if (groups.size >= MAX_GROUPS) groups.clear();
  const timeoutMs = native.shortTimeoutMs(group);
  groups.set(group, { name: native.shortGroupName(group), timeoutMs });
}

function methodOf(key, arrays, operatorName, rankName) {
  // Most calls have no names, and strings cost more than all the rest here.
  const isPlainCall = operatorName === null && rankName === null;
  const known = isPlainCall ? plainMethods[arrays - 1] : methods;
  const call = isPlainCall ? key : `${key} ${arrays} ${operatorName} ${rankName}`;
  let method = known.get(call);
  if (method === undefined) {
    method = native.shortMethod(key, arrays, operatorName, rankName);
    if (method !== -1 && native.shortIsReceive(method)) receivers.add(method);
    // Programs that make up names must not fill the memory, here or there.
    if (method !== -1 || known.size < MAX_CALLS) known.set(call, method);
  }
  return method;
}

const MAX_CALLS = 1000;
