// The replacing of a group's members: a call that waits, and returns a `Work` at once. Knows
// nothing of how members meet.

import { isPlain } from "./arguments.js";
import { invokeAsync } from "./calls.js";
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
class PromisedOperation {
  /** "running" | "ended" */
  state = "running";
  /** The outcome: null, or a record with the error. */
  failure = null;
  #listeners = new Set();
  #began = performance.now();
  #endedAt = null;

  constructor(name, group, promise) {
    const { groupName, timeout } = group;
    const outputs = Object.freeze([]);
    const sourceRank = () => null;
    this.native = { name, sequence: -1, groupName, timeoutMs: timeout, outputs, sourceRank };
    promise.then(() => this.#end(null), (error) => this.#end({ error }));
  }

  milliseconds() {
    return (this.#endedAt ?? performance.now()) - this.#began;
  }

  whenEnded(listener) {
    if (this.state === "ended") listener(this.failure);
    else this.#listeners.add(listener);
  }

  forget(listener) {
    this.#listeners.delete(listener);
  }

  poll() {}

  #end(failure) {
    this.state = "ended";
    this.failure = failure;
    this.#endedAt = performance.now();
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener(failure);
  }
}
