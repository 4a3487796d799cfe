// The name that a block gives to the operations that are called in it: recordComm. Knows no
// operations.

import { InvalidTypeError } from "../generated/errors.js";
import { native, platform } from "./native.js";
import { expectAtMost, expectFunction } from "./options.js";

/** Whether there was ever a block: who has none pays nothing for names. */
let isUsed = false;

/** Runs `callback`, whose operations are called `name` in errors and for hooks. */
export function recordComm(name, callback) {
  expectAtMost(2, "recordComm", arguments.length);
  if (typeof name !== "string") {
    throw new InvalidTypeError(`recordComm(): 'name' must be a string, not ${typeof name}`);
  }
  expectFunction("recordComm", "callback", callback);
  isUsed = true;
  return platform.commName.run(name, callback);
}

/** The name that counts for what calls now; null if there is none. */
export function commName() {
  return isUsed ? (platform.commName.get() ?? null) : null;
}

/** What `call` of the native half gives, which is called `name` if that is not null. */
export function named(name, call) {
  if (name === null) return call();
  native.nameCalls(name);
  try {
    return call();
  } finally {
    native.nameCalls(null);
  }
}
