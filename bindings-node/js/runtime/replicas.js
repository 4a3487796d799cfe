// A replica's state as two functions of the program: the native half asks for it as for the value
// of a store. Knows nothing of managers.

import { decode, encode } from "./codec.js";
import { InvalidTypeError, UnsupportedError } from "../generated/errors.js";
import { expectAtMost, expectFunction, told } from "./options.js";

/** Has two functions give and take a part of a manager's state. */
export function registerStateDictFn(manager, given) {
  expectAtMost(3, "registerStateDictFn", given.length);
  const [key, loadStateDict, stateDict] = given;
  if (typeof key !== "string") {
    throw new InvalidTypeError(
      `registerStateDictFn(): 'key' must be a string, not ${told(key)}`,
    );
  }
  expectFunction("registerStateDictFn", "loadStateDict", loadStateDict);
  expectFunction("registerStateDictFn", "stateDict", stateDict);
  manager.registerStateStore(key, new StateFunctions(loadStateDict, stateDict));
}

/** A store of one value, which two functions give and take. */
class StateFunctions {
  #load;
  #save;

  constructor(load, save) {
    this.#load = load;
    this.#save = save;
  }

  async get() {
    return encode(await this.#save());
  }

  async set(_, value) {
    await this.#load(decode(value));
  }

  add() {
    return refuse("add");
  }

  check() {
    return refuse("check");
  }

  compareSet() {
    return refuse("compareSet");
  }

  deleteKey() {
    return refuse("deleteKey");
  }
}

/** A store has these methods, and nobody calls them of a state. */
function refuse(operation) {
  const fields = { who: "a state", operation };
  throw new UnsupportedError(`a state has no ${operation}`, fields);
}
