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
 * in the first of them behind it waits until it is over. */
export function inOrder(groups, begin) {
  const [first, ...others] = groups;
  if (first === undefined) return begin();
  if (others.length === 0) return waitInLine(first, begin);
  const before = Promise.all(others.map((group) => waitInLine(group, async () => {})));
  return waitInLine(first, () => before.then(begin));
}

/** As `inOrder`, for a call that leaves the groups: what was called before it has this long
 * to end, as operations in flight have. Then `abort` ends it. */
export function inOrderOrAfterAbort(groups, begin, limitMs, abort) {
  const isBehind = groups.some((group) => lineOf(group) !== undefined);
  const timer = isBehind ? setTimeout(() => tryTo(abort), limitMs) : null;
  return inOrder(groups, () => {
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

  constructor(begin, settle) {
    this.#begin = begin;
    this.#settle = settle;
  }

  begin(over) {
    let result;
    try {
      result = Promise.resolve(this.#begin());
    } catch (error) {
      result = Promise.reject(error);
    }
    this.#settle(result);
    result.then(over, over);
  }
}

function waitInLine(group, begin) {
  return new Promise((settle) => append(group, new Turn(begin, settle)));
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

/** There may be nothing to abort any more. */
function tryTo(abort) {
  try {
    abort();
  } catch {
    // The line goes on, and so does the call.
  }
}
