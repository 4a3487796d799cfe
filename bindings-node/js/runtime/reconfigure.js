// The replacing of a group's members: a call that waits, and returns a `Work` at once. Knows
// nothing of how members meet.

import { InvalidTypeError } from "../generated/errors.js";
import { invokeAsync } from "./calls.js";
import { EndingOperation } from "./ending.js";
import { ANYTHING, isPlain, told } from "./options.js";
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
  checkMembers(list);
  if (Object.prototype.toString.call(handles) === "[object Set]") list.ordered = false;
  return list;
}

const isWhole = (value) => typeof value === "bigint" || Number.isInteger(value);
const isString = (value) => typeof value === "string";
const isLimit = (value) => (value ?? null) === null || ["bigint", "number"].includes(typeof value);

/** What each member must be. */
const MEMBERS = {
  uuid: ["an integer", isWhole],
  handles: ["a list or a Set of strings", (all) => Array.isArray(all) && all.every(isString)],
  ordered: ["boolean", (value) => value === undefined || typeof value === "boolean"],
  timeout: ["a number of milliseconds, or null", isLimit],
  hints: ANYTHING,
  signal: ANYTHING,
};

/** Says which member is wrong, where the core would say that the whole is. */
function checkMembers(options) {
  for (const name of new Set(["uuid", "handles", ...Object.keys(options)])) {
    if (!Object.hasOwn(MEMBERS, name)) {
      const known = Object.keys(MEMBERS).join(", ");
      const text = `reconfigure(): argument 'opts' has no member '${name}'; there are ${known}`;
      throw new InvalidTypeError(text);
    }
    const [[expected, fits], value] = [MEMBERS[name], options[name]];
    if (fits(value)) continue;
    const came = cameFor(value);
    throw new InvalidTypeError(
      `reconfigure(): member '${name}' of argument 'opts' must be ${expected}, not ${came}`,
    );
  }
}

/** What came, as messages say it. */
function cameFor(value) {
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
