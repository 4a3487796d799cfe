// Operations in flight: their copies in slices, their issue, their completion. Copies are made on
// this thread, at most TURN_BYTES in a turn of the event loop; the operations of one group are
// issued in the order of its queue. The native half keeps no array: each slice is passed the arrays
// again, so that one that was detached is noticed and not touched. Knows nothing of promises or of
// arguments.

import { InvalidArgumentError, asError } from "../generated/errors.js";
import { textOf } from "./causes.js";
import { EndingOperation } from "./ending.js";
import { findOverlaps, predecessors, registerMemory, releaseMemory } from "./memory_in_use.js";
import { tellOfFailure, tellOfFailures } from "./hooks.js";
import { native, platform, whenInstalled } from "./native.js";
import { COLLECTIVES, enqueue, isFree, leave, ready, stay, unblock, whenReady } from "./queues.js";
import { byteLengthOf } from "./views.js";

/** Copies of up to this many bytes are made immediately and not counted. */
const SMALL_BYTES = 64 * 1024;
/** Bytes that are copied in a turn of the event loop. */
const TURN_BYTES = 4 * 1024 * 1024;
/** Bytes of one operation that are copied before the next one's turn. */
const SLICE_BYTES = 1024 * 1024;
/** Bytes that every slice counts for at least, so that a turn ends however small they are. */
const MIN_SLICE_BYTES = 4096;

/** Operations whose results are being copied out. */
const arriving = new Set();
/** Operations that are issued, by the number of their native half. */
const running = new Map();

let spareBytes = TURN_BYTES;
let turnIsDue = false;

/** One operation: `tensors` are the bytes of `views`, `bytes` is what they have together. */
export class Operation extends EndingOperation {
  #abandoned = false;
  /** Whether all that it reads was copied in, though it is not issued. */
  #isCopied = false;

  /** Where its tensors lie, while it is in flight. */
  spans = [];
  /** Operations in flight that must end before this one copies in. */
  predecessors = null;
  /** Operations for which this one is such a predecessor. */
  successors = null;
  /** Its hooks, if it has any. */
  hooked = null;

  constructor(nativeWork, { tensors, infos, views, bytes, operator = null }) {
    super();
    this.native = nativeWork;
    this.tensors = tensors;
    this.infos = infos;
    this.views = views;
    this.bytes = bytes;
    // Its function is called by the number that only the operator knows.
    this.operator = operator;
  }

  /** Checks whether it is complete, without waiting. */
  poll() {
    if (running.has(this.native.id) && this.native.isDone()) this.arrive();
  }

  /** Ends it here; the ranks finish it among themselves, and its result is not copied out. What it
   * has not read yet it reads now: the arrays are the caller's again. */
  abandon(reason) {
    if (this.state === "ended") return;
    this.#abandoned = true;
    this.#copyAll();
    this.notify({ error: reason });
  }

  /** An operation that this one had to wait for has ended, and nobody has heard of that. */
  follow(predecessor) {
    this.predecessors.delete(predecessor);
    if (this.#abandoned) this.#copyAll();
  }

  /** Copies all in that is not, of an operation that does not wait for what others write. */
  #copyAll() {
    if (this.native.issued || this.#isCopied || (this.predecessors?.size ?? 0) > 0) return;
    try {
      while (!this.copyIn(this.bytes)) continue;
      this.#isCopied = true;
    } catch {
      // An array was lost. When it is this one's turn, that is found again, and ends the group.
    }
  }

  /** It cannot be issued, although the other ranks depend on it. */
  giveUp(error) {
    this.native.giveUp(textOf(error));
    this.end({ error });
  }

  /** It was issued. */
  run() {
    this.hooked?.issued();
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
      if (failure !== null) return this.end({ error: asError(failure) });
      return this.copyOut(allowance(this.bytes));
    } catch (error) {
      return this.end({ error: asError(error) });
    }
  }

  /** Copies a slice of what is given; whether that was all. */
  copyIn(limit) {
    if (this.#isCopied) return true;
    this.#checkLengths();
    const before = this.native.bytesCopiedIn;
    const left = this.native.copyIn(this.tensors, limit);
    use(this.native.bytesCopiedIn - before);
    return left === 0;
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

  /** It ended, with `failure` or well. */
  end(failure) {
    if (!this.#abandoned) this.notify(failure);
    this.#release();
  }

  /** The native half sees that an array is detached or shorter; a longer one has other bytes. */
  #checkLengths() {
    this.views.forEach((view, index) => {
      if (byteLengthOf(view) === byteLengthOf(this.tensors[index])) return;
      throw new InvalidArgumentError("an array was resized while an operation used it", {});
    });
  }

  #release() {
    running.delete(this.native.id);
    arriving.delete(this);
    release(this);
    this.native = this.native.end();
    this.tensors = null;
    this.infos = null;
    this.views = null;
    this.operator = null;
  }

  notify(failure) {
    if (failure !== null) tellOfFailures();
    super.notify(failure);
  }
}

/** The operation of a call, on its way. `group` is the native half of its group, null for the
 * default group. `prepare` makes its own native half; it is given how many bytes that may copy in
 * immediately, -1: it must not start yet. `hook` gives what hooks an operation of the group has; it
 * is null if the group has none. `orders` are those in which it has its place. */
export function start(call, group, prepare, { hook = null, orders = COLLECTIVES } = {}) {
  const shared = findOverlaps(call);
  const isNext = shared.length === 0 && isFree(group, orders);
  const eager = isNext ? allowance(call.bytes) : -1;
  const operation = new Operation(prepare(hook === null ? eager : -1), call);
  if (operation.native.issued) {
    if (call.bytes > SMALL_BYTES) spend(operation.native.bytesCopiedIn);
    return runIssued(operation);
  }
  operation.hooked = hook === null ? null : hook(operation.native);
  if (operation.hooked !== null && isNext && beginHooked(operation, eager)) {
    return runIssued(operation);
  }
  if (shared.length > 0) waitFor(operation, predecessors(shared, operation.native));
  registerMemory(operation);
  enqueue(operation, orders);
  return operation;
}

/** Runs the hooks before an operation that is the next of its group, and issues it if no more than
 * `limit` bytes have to be copied in for that; whether it is issued. */
function beginHooked(operation, limit) {
  operation.hooked.before();
  if (operation.bytes > limit) return false;
  try {
    if (!operation.copyIn(limit)) return false;
    operation.native.issue();
    return true;
  } catch (error) {
    const failure = asError(error);
    operation.native.giveUp(textOf(failure));
    throw failure;
  }
}

/** The operation of a call that the native half has issued already. */
export function follow(nativeWork, call) {
  if (call.bytes > SMALL_BYTES) spend(nativeWork.bytesCopiedIn);
  return runIssued(new Operation(nativeWork, call));
}

/** Operations that are issued, and have not ended as far as is known. */
export function inFlight() {
  return running.values();
}

function runIssued(operation) {
  operation.run();
  // Most small ones have ended by now.
  if (operation.tensors !== null) registerMemory(operation);
  return operation;
}

/** Makes `operation` wait until those before it have ended. */
function waitFor(operation, before) {
  operation.predecessors = before;
  for (const other of before) (other.successors ??= []).push(operation);
}

/** Resumes those that waited for `operation`. */
function release(operation) {
  releaseMemory(operation);
  if (operation.successors === null) return;
  for (const next of operation.successors) next.follow(operation);
  operation.successors = null;
  unblock();
}

/** How many of an operation's `bytes` may be copied now. */
export function allowance(bytes) {
  return bytes <= SMALL_BYTES ? SMALL_BYTES : Math.max(spareBytes, 0);
}

function spend(bytes) {
  if (bytes > SMALL_BYTES) use(bytes);
}

function use(bytes) {
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
  while (spareBytes > 0 && (arriving.size > 0 || ready.size > 0)) {
    for (const operation of [...arriving]) {
      if (spareBytes > 0) sliceOut(operation);
    }
    for (const place of [...ready]) {
      if (spareBytes > 0) sliceIn(place);
    }
  }
  if (arriving.size > 0 || ready.size > 0) askForTurn();
}

function sliceOut(operation) {
  // To the end of the queue, so that every operation has its turn.
  arriving.delete(operation);
  arriving.add(operation);
  try {
    operation.copyOut(slice());
  } catch (error) {
    operation.end({ error: asError(error) });
  }
}

/** Copies a slice of an operation in whose turn it is, and issues it if that was all. */
function sliceIn(place) {
  const { operation } = place;
  ready.delete(place);
  let isOver = true;
  let failure = null;
  try {
    operation.hooked?.before();
    isOver = operation.copyIn(slice());
    if (isOver) operation.native.issue();
  } catch (error) {
    failure = { error: asError(error) };
  }
  if (isOver) leave(place);
  else stay(place);
  if (failure !== null) operation.giveUp(failure.error);
  else if (isOver) operation.run();
}

function slice() {
  const bytes = Math.min(SLICE_BYTES, spareBytes);
  spareBytes -= MIN_SLICE_BYTES;
  return bytes;
}

/** What is called when backends of this realm are asked for something. */
const onTasks = [];

/** Calls `callback` when backends or stores of this realm are asked for something. */
export function whenTasksCome(callback) {
  onTasks.push(callback);
}

whenReady(askForTurn);
whenInstalled(() => {
  native.onCompleted((ids) => {
    for (const id of ids) {
      if (id === Infinity) onTasks.forEach((callback) => callback());
      else if (id < 0) tellOfFailure(-id);
      else running.get(id)?.poll();
    }
  });
});
