// The replacing of a group's members: a call that waits, and returns a `Work` at once. Knows
// nothing of how members meet.

import { isPlain } from "./arguments.js";
import { invokeAsync } from "./calls.js";
import { EndingOperation } from "./ending.js";
import { INTERNAL, Work } from "./work.js";

/** Replaces the members of a group: the handle of that. A set of handles leaves the ranks to the
 * library. */
export function reconfigure(spec, group, given) {
  const [options, ...others] = given;
  const unordered = isPlain(options) && options.handles instanceof Set;
  const members = unordered
    ? { ...options, handles: [...options.handles], ordered: false }
    : options;
  return workOf(spec, group, [members, ...others]);
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
