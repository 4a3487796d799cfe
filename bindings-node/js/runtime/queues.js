// One queue of calls for each group: they run in the order in which they were called, as on ranks
// of languages where a call blocks, because the ranks number their operations in this order. An
// operation leaves its group's queue when it is issued; a call that waits (objects, new groups,
// barriers with names) when it is over, because it may issue several operations one after the
// other.
// Knows nothing of how an operation is copied and issued.

/** Queues whose first operation may be copied in and issued, by group. */
export const ready = new Map();
/** Those whose first operation must wait for another one, on the same memory. */
const blocked = new Map();
/** Those whose first is a call under way. */
const held = new Map();

let notifyReady = () => {};

/** Has `callback` called when there is something in `ready`. */
export function whenReady(callback) {
  notifyReady = callback;
}

/** Whether an operation may be issued immediately: nothing is queued before it in its group. The
 * group's native half is asked only if it matters; null: it is not known here. */
export function isFree(group) {
  if (ready.size > 0 || blocked.size > 0) return false;
  return held.size === 0 || (group !== null && !held.has(group.id));
}

/** Whether nothing waits in any group. */
export function isIdle() {
  return ready.size === 0 && blocked.size === 0 && held.size === 0;
}

/** Puts an operation at the end of its group's queue. */
export function enqueue(operation) {
  append(operation.native.group, operation);
}

/** Runs `begin` when everything that was called before it in `groups` is issued. What is called
 * in the first of them behind it waits until it is over. */
export function inOrder(groups, begin) {
  const [first, ...others] = groups;
  if (first === undefined) return begin();
  if (others.length === 0) return waitInQueue(first, begin);
  const before = Promise.all(others.map((group) => waitInQueue(group, async () => {})));
  return waitInQueue(first, () => before.then(begin));
}

/** As `inOrder`, for a call that leaves the groups: what was called before it has this long
 * to end, as operations in flight have. Then `abort` ends it. */
export function inOrderOrAfterAbort(groups, begin, limitMs, abort) {
  const isBehind = groups.some((group) => queueOf(group) !== undefined);
  const timer = isBehind ? setTimeout(abort, limitMs) : null;
  return inOrder(groups, () => {
    clearTimeout(timer);
    return begin();
  });
}

/** Goes on with a queue that was taken out of `ready`. */
export function resume(group, queue) {
  const [first] = queue;
  if (first === undefined) return;
  if (first instanceof QueuedCall) {
    held.set(group, queue);
    first.begin(() => next(group, queue));
  } else if (first.predecessors !== null && first.predecessors.size > 0) {
    blocked.set(group, queue);
  } else {
    ready.set(group, queue);
    notifyReady();
  }
}

/** Lets those queues go on whose first operation waits for no other one any more. */
export function unblock() {
  for (const [group, queue] of blocked) {
    if (queue[0].predecessors.size > 0) continue;
    blocked.delete(group);
    resume(group, queue);
  }
}

/** A call that keeps its queue from going on until it is over. */
class QueuedCall {
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

function waitInQueue(group, begin) {
  return new Promise((settle) => append(group, new QueuedCall(begin, settle)));
}

function queueOf(group) {
  return ready.get(group) ?? blocked.get(group) ?? held.get(group);
}

function append(group, entry) {
  const queue = queueOf(group);
  if (queue === undefined) resume(group, [entry]);
  else queue.push(entry);
}

function next(group, queue) {
  held.delete(group);
  queue.shift();
  resume(group, queue);
}
