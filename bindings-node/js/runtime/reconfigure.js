// The replacing of a group's members: a call that waits, and returns a `Work` at once. Knows
// nothing of how members meet.

import { invokeAsync } from "./calls.js";
import { EndingOperation } from "./ending.js";
import { ANYTHING, DURATION, checkMembers, isPlain, told } from "./options.js";
import { typeName } from "./views.js";
import { INTERNAL, Work } from "./work.js";

/** Replaces the members of a group: the handle of that. A set of handles leaves the ranks to the
 * library. */
export function reconfigure(spec, group, given) {
  const [options, ...others] = given;
  return workOf(spec, group, [isPlain(options) ? withList(options) : options, ...others]);
}

/** The same options, whose handles are a list, of whatever gives them one after the other. */
function withList(options) {
  const { handles } = options;
  const isListed = typeof handles === "object" && typeof handles?.[Symbol.iterator] === "function";
  const list = isListed ? { ...options, handles: [...handles] } : options;
  // The core would say that the whole is wrong.
  checkMembers(list, MEMBERS, {
    unknown: (name) => `reconfigure(): argument 'opts' has no member '${name}'`,
    member: (name) => `reconfigure(): member '${name}' of argument 'opts'`,
    required: ["uuid", "handles"],
  });
  if (Object.prototype.toString.call(handles) === "[object Set]") list.ordered = false;
  return list;
}

const isWhole = (value) => typeof value === "bigint" || Number.isInteger(value);
const isString = (value) => typeof value === "string";
const areStrings = (all) => Array.isArray(all) && all.every(isString);
const isOrdered = (value) => value === undefined || typeof value === "boolean";

/** What each member must be. */
const MEMBERS = {
  uuid: ["an integer", isWhole],
  handles: ["a list or a Set of strings", areStrings, cameForStrings],
  ordered: ["boolean", isOrdered],
  timeout: DURATION,
  hints: ANYTHING,
  signal: ANYTHING,
};

/** What came in place of strings, as messages say it. */
function cameForStrings(value) {
  if (!Array.isArray(value)) return told(value);
  return `array with ${typeName(value.find((one) => !isString(one)))}`;
}

/** Goes on without some ranks: the handle of that. */
export function shrinkGroup(spec, group, given) {
  return workOf(spec, group, given);
}

/** The handle of a call that waits. */
function workOf(spec, group, given) {
  const ended = invokeAsync(spec, group, given);
  return new Work(INTERNAL, new PromisedOperation(spec.name, group, ended), undefined, []);
}

/** The operation of a handle that ends as a promise does. */
class PromisedOperation extends EndingOperation {
  state = "running";

  constructor(name, group, promise) {
    super();
    const { groupName, timeout } = group;
    const outputs = Object.freeze([]);
    const sourceRank = () => null;
    this.native = { name, sequence: -1, groupName, timeoutMs: timeout, outputs, sourceRank };
    promise.then(() => this.notify(null), (error) => this.notify({ error }));
  }

  poll() {}
}
