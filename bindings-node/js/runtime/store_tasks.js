// Asks stores that are written in JavaScript what the native half asks them: their methods are
// called between turns of the event loop, and what they return or promise is the answer. Knows
// nothing of what it is for.

import { camelName } from "./arguments.js";
import { described, noteCause } from "./causes.js";
import { nameOf, releaseStore, usedStore } from "./foreign_stores.js";
import { InvalidTypeError, StoreTimeoutError } from "../generated/errors.js";
import { native } from "./native.js";
import { whenTasksCome } from "./operations.js";
import { bytesOf, bytesOfBuffer } from "./views.js";

const encoder = new TextEncoder();

/** What methods give, by their names: a number in digits, and values. Others give nothing. */
const ANSWERS = {
  get: (value) => ["", [bytes(value)]],
  compareSet: (value) => ["", [bytes(value)]],
  queuePop: (value) => ["", [bytes(value)]],
  multiGet(values, keys) {
    const all = list(values, "an array of bytes or strings, one for each key").map(bytes);
    if (all.length === keys.length) return ["", all];
    throw new Refusal(`${keys.length} values, one for each key`, `${all.length}`);
  },
  listKeys(names) {
    const what = "an array of strings";
    return ["", list(names, what).map((name) => encoder.encode(text(name, what)))];
  },
  add: (value) => [integer(value), []],
  numKeys: (value) => [integer(value), []],
  queueLen: (value) => [integer(value), []],
  check: (value) => [flag(value), []],
  deleteKey: (value) => [flag(value), []],
};

/** What a method is called with. */
function argumentsOf(name, { keys, values, number, block, timeout }) {
  const [key] = keys;
  switch (name) {
    case "add":
      return [key, Number.isSafeInteger(Number(number)) ? Number(number) : BigInt(number)];
    case "check":
    case "multiGet":
      return [keys];
    case "multiSet":
      return [keys, values];
    case "wait":
      return timeout < 0 ? [keys] : [keys, { timeout }];
    case "barrier":
      return timeout < 0 ? [key, number] : [key, number, { timeout }];
    case "queuePop":
      return [key, { block }];
    default:
      return [...keys, ...values];
  }
}

/** Runs a task until it is over. What does not wait is called in the order of the tasks. */
async function run([id, store, method, keys, values, number, block, timeout]) {
  if (method === "forget") {
    // What it threw last may be on its way to a call that made it go: the next ones push it out.
    releaseStore(store);
    return native.endStoreTask(id, "", [], "", undefined);
  }
  const name = camelName(method);
  const object = usedStore(store);
  const began = performance.now();
  try {
    const given = argumentsOf(name, { keys, values, number, block, timeout });
    const value = await object[name](...given);
    const [digits, list] = ANSWERS[name]?.(value, keys) ?? ["", []];
    native.endStoreTask(id, digits, list, "", undefined);
  } catch (error) {
    fail(id, store, { path: `${nameOf(object)}.${name}`, name, keys, began }, error);
  }
}

/** A task of a method has failed with `error`, which may be anything. */
function fail(id, store, { path, name, keys, began }, error) {
  let thrown = error;
  if (Refusal.is(error)) {
    thrown = new InvalidTypeError(`${path} must give ${error.expected}, not ${error.came}`);
  }
  let [kind, told] = described(thrown);
  if (kind === "" && told.startsWith("TimeoutError: ")) {
    // As the signals of `AbortSignal.timeout` give.
    const waitedMs = Math.round(performance.now() - began);
    const fields = { operation: name, keys: keys.join(", "), waitedMs };
    thrown = new StoreTimeoutError(`${path}: ${told}`, fields);
    thrown.cause = error;
    kind = "StoreTimeout";
  }
  noteCause(`${path}: ${told}`, store, thrown);
  // Of other methods, it is not that keys are missing.
  if (kind === "StoreTimeout" && !WAITS.has(name)) kind = "";
  native.endStoreTask(id, "", [], kind, told);
}

/** The methods that wait for keys up to a limit that they are given. */
const WAITS = new Set(["wait", "barrier"]);

/** An answer that is not what the method is to give. */
class Refusal {
  #isOne = true;

  constructor(expected, came) {
    this.expected = expected;
    this.came = String(came);
  }

  /** Whether a value is one, without looking at it. */
  static is(value) {
    return typeof value === "object" && value !== null && #isOne in value;
  }
}

function bytes(value) {
  if (typeof value === "string") return encoder.encode(value);
  if (ArrayBuffer.isView(value)) return bytesOf(value);
  if (value instanceof ArrayBuffer) return bytesOfBuffer(value);
  throw new Refusal("bytes or a string", typeName(value));
}

function list(value, what) {
  if (Array.isArray(value)) return value;
  throw new Refusal(what, typeName(value));
}

function text(value, what) {
  if (typeof value === "string") return value;
  throw new Refusal(what, `one of ${typeName(value)}`);
}

function integer(value) {
  if (typeof value === "bigint" && BigInt.asIntN(64, value) !== value) {
    throw new Refusal("an integer of 64 bits", String(value));
  }
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return String(value);
  throw new Refusal("an integer", typeof value === "number" ? String(value) : typeName(value));
}

function flag(value) {
  if (typeof value === "boolean") return value ? "1" : "0";
  throw new Refusal("true or false", typeName(value));
}

function typeName(value) {
  if (value === null || value === undefined) return String(value);
  return typeof value === "object" ? (value.constructor?.name ?? "object") : `a ${typeof value}`;
}

whenTasksCome(() => {
  for (let task; (task = native.takeStoreTask() ?? null) !== null; ) run(task);
});
