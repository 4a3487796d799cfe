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
/** Those whose first is a call that is running. */
const running = new Map();

let notifyReady = () => {};

/** Sets `callback` to be called when there is something in `ready`. */
export function whenReady(callback) {
  notifyReady = callback;
}

/** Whether an operation may be issued immediately: nothing is queued before it in its group. The
 * group's native half is used only if it matters; null: it is not known here. */
export function isFree(group) {
  if (ready.size > 0 || blocked.size > 0) return false;
  return running.size === 0 || (group !== null && !running.has(group.id));
}

/** Whether nothing waits in any group. */
export function isIdle() {
  return ready.size === 0 && blocked.size === 0 && running.size === 0;
}

/** Puts an operation at the end of its group's queue. */
export function enqueue(operation) {
  append(operation.native.group, operation);
}

/** Runs `begin` once everything called earlier on `groups` is issued; later calls on the first
 * group wait until it ends. */
export function inOrder(groups, begin) {
  const [first, ...others] = groups;
  if (first === undefined) return begin();
  if (others.length === 0) return waitInQueue(first, begin);
  const before = Promise.all(others.map((group) => waitInQueue(group, async () => {})));
  return waitInQueue(first, () => before.then(begin));
}

/** As `inOrder`, for a call that leaves the groups: earlier calls have `limitMs` to end, as
 * operations in flight have. Then `abort` ends them. */
export function inOrderOrAfterAbort(groups, begin, limitMs, abort) {
  const isQueued = groups.some((group) => queueOf(group) !== undefined);
  const timer = isQueued ? setTimeout(abort, limitMs) : null;
  return inOrder(groups, () => {
    clearTimeout(timer);
    return begin();
  });
}

/** Continues a queue that was taken out of `ready`. */
export function resume(group, queue) {
  const [first] = queue;
  if (first === undefined) return;
  if (first instanceof QueuedCall) {
    running.set(group, queue);
    first.begin(() => next(group, queue));
  } else if (first.predecessors !== null && first.predecessors.size > 0) {
    blocked.set(group, queue);
  } else {
    ready.set(group, queue);
    notifyReady();
  }
}

/** Resumes queues whose first operation is no longer blocked. */
export function unblock() {
  for (const [group, queue] of blocked) {
    if (queue[0].predecessors.size > 0) continue;
    blocked.delete(group);
    resume(group, queue);
  }
}

/** A call that holds up its queue until it has ended. */
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
  return ready.get(group) ?? blocked.get(group) ?? running.get(group);
}

function append(group, entry) {
  const queue = queueOf(group);
  if (queue === undefined) resume(group, [entry]);
  else queue.push(entry);
}

function next(group, queue) {
  running.delete(group);
  queue.shift();
  resume(group, queue);
}
