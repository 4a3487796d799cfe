// Operations on their way: the order in which they are issued, their copies in slices, their
// completion. Copies are made on this thread, at most TURN_BYTES in a turn of the event loop; the
// operations of one group are issued in the order of the calls. The native half keeps no array:
// each slice is handed the arrays anew, so that one that was detached is noticed and not touched.
// Knows nothing of promises or of arguments.

import { InvalidArgumentError, asError } from "./errors.js";
import { native, platform, whenInstalled } from "./native.js";

/** As much is copied at once without counting. */
const SMALL_BYTES = 64 * 1024;
/** As much is copied in a turn of the event loop. */
const TURN_BYTES = 4 * 1024 * 1024;
/** As much of one operation is copied before it is another one's turn. */
const SLICE_BYTES = 1024 * 1024;
/** As much every slice counts for, so that a turn has an end however small they are. */
const LEAST_BYTES = 4096;

/** Operations that are not issued, in order, by group. */
const queues = new Map();
/** Operations whose results are being copied out. */
const arriving = new Set();
/** Operations that are issued, by the number of their native half. */
const running = new Map();

let spareBytes = TURN_BYTES;
let turnIsDue = false;

/** One operation: `tensors` are the bytes of `views`, `bytes` is what they have together. */
export class Operation {
  /** "queued" | "running" | "arriving" | "ended" */
  state = "queued";
  /** What it ended with: null, or an error. */
  error = null;
  #listeners = null;
  #abandoned = false;

  constructor(nativeWork, tensors, views, bytes) {
    this.native = nativeWork;
    this.tensors = tensors;
    this.views = views;
    this.bytes = bytes;
  }

  /** Calls `listener` once with the error or null, at once if it has ended. */
  whenEnded(listener) {
    if (this.state === "ended") listener(this.error);
    else (this.#listeners ??= new Set()).add(listener);
  }

  /** Forgets a listener. */
  forget(listener) {
    this.#listeners?.delete(listener);
  }

  /** Looks whether it is complete, without waiting. */
  poll() {
    if (running.has(this.native.id) && this.native.isDone()) this.arrive();
  }

  /** Ends it here; the ranks finish it among themselves, and its result is not copied out. */
  abandon(reason) {
    if (this.state === "ended") return;
    this.#abandoned = true;
    this.#tell(reason);
  }

  /** It was issued. */
  run() {
    if (!this.#abandoned) this.state = "running";
    if (this.native.isDone()) return this.arrive();
    running.set(this.native.id, this);
    this.native.watch();
  }

  /** It is complete: copies what came. */
  arrive() {
    running.delete(this.native.id);
    if (this.#abandoned) return this.#release();
    try {
      const failure = this.native.error();
      if (failure !== null) return this.end(asError(failure));
      return this.copyOut(allowance(this.bytes));
    } catch (error) {
      return this.end(asError(error));
    }
  }

  /** Copies a slice of what is given; whether that was all. */
  copyIn(limit) {
    this.#checkLengths();
    spend(Math.min(limit, this.bytes));
    return this.native.copyIn(this.tensors, limit) === 0;
  }

  /** Copies a slice of what came, and ends if that was all. */
  copyOut(limit) {
    if (this.#abandoned) return this.#release();
    this.#checkLengths();
    spend(Math.min(limit, this.bytes));
    if (this.native.copyOut(this.tensors, limit) === 0) return this.end(null);
    if (this.state === "arriving") return undefined;
    this.state = "arriving";
    arriving.add(this);
    return askForTurn();
  }

  /** It ended, with `error` or well. */
  end(error) {
    if (!this.#abandoned) this.#tell(error);
    this.#release();
  }

  /** The native half sees that an array is detached or shorter; a longer one has other bytes. */
  #checkLengths() {
    this.views.forEach((view, index) => {
      if (view.byteLength === this.tensors[index].byteLength) return;
      throw new InvalidArgumentError("an array was resized while an operation used it", {});
    });
  }

  #release() {
    running.delete(this.native.id);
    arriving.delete(this);
    this.tensors = null;
    this.views = null;
  }

  #tell(error) {
    this.state = "ended";
    this.error = error;
    const listeners = this.#listeners;
    this.#listeners = null;
    if (listeners !== null) for (const listener of listeners) listener(error);
  }
}

/** How many bytes a call with tensors of `bytes` may copy in at once; -1: it must not start yet. */
export function startWithin(bytes) {
  return queues.size > 0 ? -1 : allowance(bytes);
}

/** Puts a prepared operation on its way. */
export function start(operation) {
  if (operation.native.issued) {
    spend(operation.bytes);
    operation.run();
    return;
  }
  const group = operation.native.group;
  const queue = queues.get(group);
  if (queue === undefined) queues.set(group, [operation]);
  else queue.push(operation);
  askForTurn();
}

function allowance(bytes) {
  return bytes <= SMALL_BYTES ? SMALL_BYTES : Math.max(spareBytes, 0);
}

function spend(bytes) {
  if (bytes <= SMALL_BYTES) return;
  spareBytes -= bytes;
  askForTurn();
}

function askForTurn() {
  if (turnIsDue) return;
  turnIsDue = true;
  platform.nextTurn(turn);
}

/** One turn of the event loop: slices of all operations that copy, each in its turn. */
function turn() {
  turnIsDue = false;
  spareBytes = TURN_BYTES;
  while (spareBytes > 0 && (arriving.size > 0 || queues.size > 0)) {
    for (const operation of [...arriving]) {
      if (spareBytes > 0) sliceOut(operation);
    }
    for (const [group, queue] of [...queues]) {
      if (spareBytes > 0) sliceIn(group, queue);
    }
  }
  if (arriving.size > 0 || queues.size > 0) askForTurn();
}

function sliceOut(operation) {
  // To the end of the line, so that every operation has its turn.
  arriving.delete(operation);
  arriving.add(operation);
  try {
    operation.copyOut(slice());
  } catch (error) {
    operation.end(asError(error));
  }
}

/** Copies a slice of a queue's first operation in, and issues it if that was all. */
function sliceIn(group, queue) {
  const operation = queue[0];
  queues.delete(group);
  let isOver = true;
  try {
    isOver = operation.copyIn(slice());
    if (isOver) operation.native.issue();
  } catch (error) {
    queue.shift();
    if (queue.length > 0) queues.set(group, queue);
    operation.end(asError(error));
    return;
  }
  if (isOver) queue.shift();
  if (queue.length > 0) queues.set(group, queue);
  if (isOver) operation.run();
}

function slice() {
  const bytes = Math.min(SLICE_BYTES, spareBytes);
  spareBytes -= LEAST_BYTES;
  return bytes;
}

whenInstalled(() => {
  native.onCompleted((ids) => {
    for (const id of ids) running.get(id)?.poll();
  });
});
