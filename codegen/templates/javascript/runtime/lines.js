// In which order the calls of each group go on: that of the calls, as on ranks of languages where
// a call blocks, for in this order the ranks number their operations. An operation leaves its
// group's line when it is issued; a call that waits (objects, new groups, barriers with names)
// when it is over, because it may issue several operations, one after the other.
// Knows nothing of how an operation is copied and issued.

/** Lines whose first operation may be copied in and issued, by group. */
export const ready = new Map();
/** Those whose first operation must wait for another one, on the same memory. */
const blocked = new Map();
/** Those whose first is a call under way. */
const held = new Map();

/** How long a call that leaves a group waits behind calls that nobody waits for, ms: as long as it
 * waits for operations in flight. */
const MOMENT_MS = 5000;

let tellReady = () => {};

/** Has `callback` called when there is something in `ready`. */
export function whenReady(callback) {
  tellReady = callback;
}

/** Whether an operation may be issued at once: nobody stands before it in its group. The group's
 * native half is asked only if it matters; null: it is not known here. */
export function isFree(group) {
  if (ready.size > 0 || blocked.size > 0) return false;
  return held.size === 0 || (group !== null && !held.has(group.id));
}

/** Puts an operation at the end of its group's line. */
export function enqueue(operation) {
  append(operation.native.group, operation);
}

/** Runs `begin` when everything that was called before it in `groups` is issued. What is called
 * in the first of them behind it waits until it is over. Nobody waits for it after `signal`. */
export function inOrder(groups, begin, signal = null) {
  const [first, ...others] = groups;
  if (first === undefined) return begin();
  if (others.length === 0) return waitInLine(first, begin, signal);
  const before = Promise.all(others.map((group) => waitInLine(group, async () => {}, signal)));
  return waitInLine(first, () => before.then(begin), signal);
}

/** As `inOrder`, for a call that leaves the groups: where nobody waits any more for what was called
 * before it, that has a moment to end. Then `abort` ends it. */
export function inOrderOrAfterAbort(groups, begin, abort) {
  const before = groups.flatMap((group) => lineOf(group) ?? []);
  let timer = null;
  let hasBegun = false;
  const expire = () => {
    try {
      abort();
    } catch {
      // There is nothing to abort any more.
    }
  };
  Promise.all(before.map(unneeded)).then(() => {
    if (!hasBegun) timer = setTimeout(expire, MOMENT_MS);
  });
  return inOrder(groups, () => {
    hasBegun = true;
    clearTimeout(timer);
    return begin();
  });
}

/** Goes on with a line that was taken out of `ready`. */
export function resume(group, line) {
  const [first] = line;
  if (first === undefined) return;
  if (first instanceof Turn) {
    held.set(group, line);
    first.begin(() => next(group, line));
  } else if (first.predecessors !== null && first.predecessors.size > 0) {
    blocked.set(group, line);
  } else {
    ready.set(group, line);
    tellReady();
  }
}

/** Lets those lines go on whose first operation waits for no other one any more. */
export function unblock() {
  for (const [group, line] of blocked) {
    if (line[0].predecessors.size > 0) continue;
    blocked.delete(group);
    resume(group, line);
  }
}

/** A call that holds its line until it is over. */
class Turn {
  #begin;
  #settle;
  #ended;
  #end;

  constructor(begin, settle, signal) {
    this.#begin = begin;
    this.#settle = settle;
    this.#ended = new Promise((end) => {
      this.#end = end;
    });
    if (signal?.aborted) this.#end();
    signal?.addEventListener("abort", this.#end, { once: true });
    this.#ended.then(() => signal?.removeEventListener("abort", this.#end));
  }

  /** Calls `listener` when it is over, or nobody waits for it any more. */
  whenEnded(listener) {
    this.#ended.then(listener);
  }

  begin(over) {
    let result;
    try {
      result = Promise.resolve(this.#begin());
    } catch (error) {
      result = Promise.reject(error);
    }
    this.#settle(result);
    result.then(this.#end, this.#end);
    result.then(over, over);
  }
}

/** When nobody needs what stands in a line any more: it ended, or was given up. */
function unneeded(entry) {
  return new Promise((resolve) => entry.whenEnded(resolve));
}

function waitInLine(group, begin, signal) {
  return new Promise((settle) => append(group, new Turn(begin, settle, signal)));
}

function lineOf(group) {
  return ready.get(group) ?? blocked.get(group) ?? held.get(group);
}

function append(group, entry) {
  const line = lineOf(group);
  if (line === undefined) resume(group, [entry]);
  else line.push(entry);
}

function next(group, line) {
  held.delete(group);
  line.shift();
  resume(group, line);
}
