// Arguments of a call: JavaScript values in, neutral ones for the native half out. Options come as
// one plain object after the others. Which overload is meant, the core decides; nothing here knows
// a method.

import { ReduceOp } from "../generated/constants.js";
import { encode } from "./codec.js";
import { CudaTensor, describedOnDevice } from "./cuda.js";
import { InvalidArgumentError, InvalidTypeError } from "../generated/errors.js";
import { isStoreLike, lackOf, markedStore } from "./foreign_stores.js";
import { HANDLE } from "./handles.js";
import { NonGroupMember } from "./members.js";
import { isPlain } from "./options.js";
import { steadyBytesOf } from "./owned.js";
import { numberOf } from "./reductions.js";
import { NO_BYTES, Tensor, codeOf, described, flatInfo, inPlace } from "./tensors.js";
import { bytesOf, bytesOfBuffer, isTypedArray, typeName } from "./views.js";

/** A call's arguments: those by position, and the options if the last one is an object of them. */
export function split(spec, given) {
  let end = given.length;
  let options = null;
  if (end > spec.required && isPlain(given[end - 1]) && !isStoreLike(given[end - 1])) {
    end -= 1;
    options = given[end];
  }
  while (end > 0 && given[end - 1] === undefined) end -= 1;
  return { positional: end === given.length ? given : given.slice(0, end), options };
}

/** The values of a call as they are now, for one that is repeated: lists, records, and arrays that
 * stand for lists of integers. Other objects, as tensors, are the same ones. */
export function copied(spec, given) {
  const values = given.map((value) => copy(value, 0));
  if (spec.integers === undefined) return values;
  const { positional, options } = split(spec, values);
  const [args, named] = listed(spec, positional, options);
  return named === null ? args : [...args, named];
}

/** The value that a call was given for a parameter, by position or among the options. */
export function argument({ positional, options }, index, name) {
  return index < positional.length ? positional[index] : options?.[name];
}

/** The signal among the options, if there is one. */
export function signalOf(options) {
  const signal = options?.signal;
  if (signal === undefined || signal === null) return null;
  if (typeof signal.aborted !== "boolean" || typeof signal.addEventListener !== "function") {
    throw new InvalidTypeError(`'signal' must be an AbortSignal, not ${typeName(signal)}`);
  }
  return signal;
}

/** The neutral values of a call without tensors: views on memory are runs of bytes. */
export function plainArguments(spec, { positional, options }) {
  return neutral(spec, positional, options, plainObject);
}

/** As `plainArguments`, with the tensors taken out: their bytes, and `infos`, what they are.
 * `views` are the arrays that the bytes are of, `arrays` the objects that were passed, `operator`
 * how elements are reduced, if that was said. */
export function tensorArguments(spec, { positional, options }) {
  const call = {
    args: null,
    keywords: null,
    tensors: [],
    infos: [],
    views: [],
    arrays: [],
    bytes: 0,
    operator: null,
  };
  const { args, keywords } = neutral(spec, positional, options, (object, depth) => {
    return takeTensor(call, object, depth);
  });
  call.args = args;
  call.keywords = keywords;
  return call;
}

/** What `tensorArguments` gives for typed arrays: those that lie in memory of polyrank are used
 * there if `isInPlace` says so, else copied as any others. */
export function flatTensors(arrays, isInPlace) {
  const call = { tensors: [], infos: [], views: [], bytes: 0 };
  for (const array of arrays) {
    let bytes = bytesOf(array);
    const owned = isInPlace ? inPlace(bytes, codeOf(array)) : null;
    if (owned !== null) bytes = NO_BYTES;
    call.tensors.push(bytes);
    call.infos.push(owned ?? flatInfo(array));
    call.views.push(owned === null ? array : NO_BYTES);
    call.bytes += bytes.byteLength;
  }
  return call;
}

/** A value that is already in the native half's form. */
export class Marked {
  constructor(marked) {
    this.marked = marked;
  }
}

/** Milliseconds as the native half takes them. */
export function duration(milliseconds) {
  return { kind: "duration", ms: Number(milliseconds) };
}

/** `reduce_op` -> `reduceOp`, as JavaScript spells the IDL's names. */
export function camelName(name) {
  return name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
}

/** `reduceOp` -> `reduce_op`, as the IDL spells names. */
export function idlName(name) {
  let known = idlNames.get(name);
  if (known === undefined) {
    known = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    // Programs that generate names in a loop must not fill the memory.
    if (idlNames.size < 1000) idlNames.set(name, known);
  }
  return known;
}

const idlNames = new Map();

/** Options that are lengths of time in every call that has them. */
const DURATIONS = new Set(["timeout", "reconnectGrace"]);

/** Options that this layer itself looks at. */
const OWN = new Set(["signal"]);

/** How deep lists and records may be nested: as in Python. */
const DEEPEST = 8;

function neutral(spec, givenPositional, givenOptions, ofObject) {
  let [positional, options] = [givenPositional, givenOptions];
  if (spec.integers !== undefined) [positional, options] = listed(spec, positional, options);
  const args = new Array(positional.length);
  for (let index = 0; index < args.length; index += 1) {
    const value = positional[index];
    try {
      const convert = spec.durations?.includes(index) ? timeOr : one;
      args[index] = convert(value, ofObject, 0);
      if (isGroupOptions(spec, index)) args[index] = withOwn(value, args[index]);
    } catch (error) {
      const name = index === spec.output ? `'${spec.outputName}'` : index + 1;
      throw ofArgument(error, spec, `argument ${name}`);
    }
  }
  if (options === null) return { args, keywords: null };
  let current = null;
  try {
    const note = (name) => (current = name);
    const keywords = members(options, ofObject, 0, note);
    for (const [, name] of spec.groupOptions ?? []) {
      const own = options[name];
      if (own !== undefined) keywords[idlName(name)] = withOwn(own, keywords[idlName(name)]);
    }
    return { args, keywords };
  } catch (error) {
    throw ofArgument(error, spec, `option '${current}'`);
  }
}

function isGroupOptions(spec, index) {
  return spec.groupOptions?.some(([position]) => position === index) ?? false;
}

/** Options of a group as the native half takes them, with what a backend that is written in
 * JavaScript gets of them, on whichever thread: what a rank would get that they are sent to. */
function withOwn(given, options) {
  if (options?.kind !== "record") return options;
  const set = Object.entries(given).filter(([, value]) => value !== undefined);
  return { kind: "options", bytes: encode(Object.fromEntries(set)), options };
}

/** What is wrong with a value, with the call and the argument. What others threw is theirs. */
function ofArgument(error, spec, what) {
  if (!(error instanceof InvalidArgumentError || error instanceof InvalidTypeError)) return error;
  const told = new error.constructor(`${spec.name}(): ${what}: ${error.message}`, {});
  if (error.cause !== undefined) told.cause = error.cause;
  return told;
}

/** The arguments with lists for arrays of integers that stand for such. */
function listed(spec, positional, options) {
  const args = [...positional];
  const named = options === null ? null : { ...options };
  for (const [position, name] of spec.integers) {
    if (position !== null && position < args.length) args[position] = listOf(args[position]);
    if (named !== null && Object.hasOwn(named, name)) named[name] = listOf(named[name]);
  }
  return [args, named];
}

function copy(value, depth) {
  // What is nested deeper is refused.
  if (depth > DEEPEST) return value;
  if (Array.isArray(value)) return Array.from(value, (item) => copy(item, depth + 1));
  if (!isPlain(value) || isStoreLike(value)) return value;
  const entries = Object.keys(value).map((name) => {
    const member = value[name];
    return [name, OWN.has(name) ? member : copy(member, depth + 1)];
  });
  return Object.fromEntries(entries);
}

function listOf(value) {
  if (isTypedArray(value)) return Array.from(value);
  if (!Array.isArray(value) || !value.some(isTypedArray)) return value;
  return value.map(listOf);
}

function members(options, ofObject, depth, note = null) {
  let all = null;
  for (const name of Object.keys(options)) {
    note?.(name);
    const value = options[name];
    if (value === undefined || OWN.has(name)) continue;
    all ??= {};
    const convert = DURATIONS.has(name) ? timeOr : one;
    all[idlName(name)] = convert(value, ofObject, depth);
  }
  return all;
}

/** As `one`, where numbers are lengths of time. */
function timeOr(value, ofObject, depth) {
  const isTime = typeof value === "number" || typeof value === "bigint";
  return isTime ? duration(value) : one(value, ofObject, depth);
}

function one(value, ofObject, depth) {
  switch (typeof value) {
    case "object":
      return value === null ? null : ofObject(value, depth);
    case "undefined":
      return null;
    case "function":
    case "symbol":
      return foreign(value);
    case "number":
      return exact(value);
    case "bigint":
      return within64Bits(value);
    default:
      return value;
  }
}

/** A number, unless it is one whose last digits JavaScript has lost. */
function exact(value) {
  if (!Number.isInteger(value) || Number.isSafeInteger(value)) return value;
  const bigint = Math.abs(value) < 2 ** 64 ? `, as ${BigInt(value)}n` : "";
  throw new InvalidArgumentError(
    `${value} is beyond 2^53, where numbers are not exact integers; give a BigInt${bigint}`,
  );
}

function within64Bits(value) {
  if (BigInt.asIntN(64, value) === value) return value;
  throw new InvalidArgumentError(
    `${value}n is beyond 64 bits: integers are from -2^63 to 2^63 - 1`,
  );
}

function takeTensor(call, object, depth) {
  let info;
  let view = object;
  if (ArrayBuffer.isView(object)) {
    info = codeOf(object);
  } else if (object instanceof Tensor) {
    ({ info, view } = described(object));
  } else if (object instanceof CudaTensor) {
    ({ info, view } = describedOnDevice(object));
  } else {
    if (object instanceof ReduceOp) call.operator = object;
    return otherObject(object, (item, below) => takeTensor(call, item, below), depth);
  }
  let bytes = bytesOf(view);
  const owned = inPlace(bytes, info);
  if (owned !== null) [info, view, bytes] = [owned, NO_BYTES, NO_BYTES];
  const index = call.tensors.push(bytes) - 1;
  call.infos.push(info);
  call.views.push(view);
  call.arrays.push(object);
  call.bytes += bytes.byteLength;
  return { kind: "tensor", index };
}

function plainObject(object, depth) {
  if (ArrayBuffer.isView(object)) return steadyBytesOf(object);
  if (object instanceof ArrayBuffer) return steadyBytesOf(bytesOfBuffer(object));
  return otherObject(object, plainObject, depth);
}

function otherObject(object, ofObject, depth) {
  if (Array.isArray(object)) {
    const below = deeper(depth);
    return object.map((item) => one(item, ofObject, below));
  }
  if (object[HANDLE] !== undefined) return object[HANDLE].marked;
  if (object instanceof ReduceOp) return reduceOp(object);
  if (object instanceof Marked) return object.marked;
  if (isStoreLike(object)) return markedStore(object);
  const lack = lackOf(object);
  if (lack !== "") return foreign(object, lack);
  if (isPlain(object)) {
    return { kind: "record", members: members(object, ofObject, deeper(depth)) ?? {} };
  }
  return foreign(object);
}

function deeper(depth) {
  if (depth < DEEPEST) return depth + 1;
  throw new InvalidTypeError(`lists and records are nested deeper than ${DEEPEST} levels`);
}

function reduceOp(operator) {
  const { value: code, factor } = operator;
  if (code === ReduceOp.CUSTOM.value) {
    return { kind: "reduceOp", code, factor: numberOf(operator) };
  }
  if (factor !== undefined) return { kind: "reduceOp", code, factor };
  if (operator === ReduceOp.PREMUL_SUM) {
    throw new InvalidTypeError("ReduceOp.PREMUL_SUM needs its factor; use premulSum(factor)");
  }
  return { kind: "reduceOp", code };
}

/** A value that only JavaScript understands: the core may refuse it by its type; `more` is said of
 * that. */
function foreign(value, more = "") {
  const interfaces = value instanceof NonGroupMember ? ["ProcessGroup"] : [];
  const callable = typeof value === "function";
  return { kind: "foreign", typeName: `${typeName(value)}${more}`, interfaces, callable };
}
