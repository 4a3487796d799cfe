// One line of calls for each group, in which they begin in the order in which they were called,
// as on ranks of languages where a call blocks: collectives, because the ranks number them in
// this order, sends, because receives take them in this order, and receives, because they take
// them in it. None waits for another sort, but for memory that they share. An operation leaves
// its line when it is issued; a call that waits (objects, meshes, barriers with names) when it is
// over, because it may issue several operations one after the other. Calls that make groups out of
// one issue nothing in it: several are under way at the same time, and only what leaves the group
// waits for them.
// Knows nothing of how an operation is copied and issued.

/** The orders in which something has its place. */
export const COLLECTIVES = Object.freeze(["collectives"]);
export const SENDS = Object.freeze(["sends"]);
export const RECEIVES = Object.freeze(["receives"]);
export const MESSAGES = Object.freeze(["sends", "receives"]);
export const ALL = Object.freeze(["collectives", "sends", "receives"]);
export const NEW_GROUPS = Object.freeze(["newGroups"]);
/** What leaves a group comes after all that was called in it. */
const LEAVING = Object.freeze([...ALL, ...NEW_GROUPS]);

/** The lines in which something waits or runs, by group. */
const lines = new Map();
/** Operations whose turn it is to be copied in and issued, in their places. */
export const ready = new Set();
/** Those that must wait for another one all the same, on the same memory. */
const blocked = new Set();

let notifyReady = () => {};

/** Sets `callback` to be called when there is something in `ready`. */
export function whenReady(callback) {
  notifyReady = callback;
}

/** Whether an operation may be issued immediately: nothing is before it in these orders of its
 * group. The group's native half is used only if it matters; null: it is not known here. */
export function isFree(group, orders) {
  if (ready.size > 0 || blocked.size > 0) return false;
  if (lines.size === 0) return true;
  const line = group === null ? null : lines.get(group.id);
  return line === undefined || (line !== null && orders.every((order) => line.isEmpty(order)));
}

/** Whether nothing waits in any group. */
export function isIdle() {
  return lines.size === 0;
}

/** Puts an operation at the end of these orders of its group. */
export function enqueue(operation, orders) {
  append(new QueuedOperation(operation.native.group, orders, operation));
}

/** Runs `begin` once everything called earlier on `groups`, in these orders, is issued; later calls
 * on the first group, in these orders, wait until it ends. */
export function inOrder(groups, begin, orders = COLLECTIVES) {
  const [first, ...others] = groups;
  if (first === undefined) return begin();
  if (others.length === 0) return waitInLine(first, begin, orders);
  const before = others.map((group) => waitInLine(group, async () => {}, orders));
  const all = Promise.all(before);
  return waitInLine(first, () => all.then(begin), orders);
}

/** Runs `begin` once nothing called earlier on `group` leaves it; no later call waits until it
 * ends, unless it leaves the group. */
export function concurrently(group, begin) {
  return waitInLine(group, begin, NEW_GROUPS);
}

/** As `inOrder`, for a call that leaves the groups: earlier calls have `limitMs` to end, as
 * operations in flight have. Then `abort` ends them. */
export function inOrderOrAfterAbort(groups, begin, limitMs, abort) {
  const isQueued = groups.some((group) => lines.has(group));
  const timer = isQueued ? setTimeout(abort, limitMs) : null;
  const started = () => {
    clearTimeout(timer);
    return begin();
  };
  return inOrder(groups, started, LEAVING);
}

/** Puts an operation that was taken out of `ready` back: its turn is not over. */
export function stay(place) {
  ready.add(place);
  notifyReady();
}

/** Ends the turn of what was the first in its line. */
export function leave(place) {
  const line = lines.get(place.group);
  for (const order of place.orders) line[order].splice(line[order].indexOf(place), 1);
  if (LEAVING.every((order) => line.isEmpty(order))) lines.delete(place.group);
  else line.advance();
}

/** Resumes operations that are no longer blocked. */
export function unblock() {
  for (const place of blocked) {
    if (place.operation.predecessors.size > 0) continue;
    blocked.delete(place);
    stay(place);
  }
}

/** What waits or runs in a group, in each order. */
class Line {
  collectives = [];
  sends = [];
  receives = [];
  newGroups = [];

  isEmpty(order) {
    return this[order].length === 0;
  }

  /** Begins what has its turn. */
  advance() {
    for (const order of ALL) this.#begin(this[order][0]);
    for (const place of [...this.newGroups]) {
      this.#begin(place);
      if (place.orders !== NEW_GROUPS) break;
    }
  }

  /** Begins what is the first in all its orders. What makes a group has no other before it. */
  #begin(place) {
    if (place === undefined || place.hasBegun) return;
    const isFirst = (order) => this[order][0] === place;
    if (place.orders !== NEW_GROUPS && !place.orders.every(isFirst)) return;
    place.hasBegun = true;
    place.begin();
  }
}

/** A place in the line of a group. */
class Place {
  hasBegun = false;

  constructor(group, orders) {
    this.group = group;
    this.orders = orders;
  }
}

class QueuedOperation extends Place {
  constructor(group, orders, operation) {
    super(group, orders);
    this.operation = operation;
  }

  begin() {
    const { predecessors } = this.operation;
    if (predecessors !== null && predecessors.size > 0) blocked.add(this);
    else stay(this);
  }
}

/** A call that holds up what is after it until it has ended. */
class QueuedCall extends Place {
  #begin;
  #settle;

  constructor(group, orders, begin, settle) {
    super(group, orders);
    this.#begin = begin;
    this.#settle = settle;
  }

  begin() {
    let result;
    try {
      result = Promise.resolve(this.#begin());
    } catch (error) {
      result = Promise.reject(error);
    }
    this.#settle(result);
    const over = () => leave(this);
    result.then(over, over);
  }
}

function waitInLine(group, begin, orders) {
  return new Promise((settle) => append(new QueuedCall(group, orders, begin, settle)));
}

function append(place) {
  const line = lines.get(place.group) ?? new Line();
  lines.set(place.group, line);
  for (const order of place.orders) line[order].push(place);
  line.advance();
}
