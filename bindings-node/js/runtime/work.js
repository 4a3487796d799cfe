// `Work`: the handle of a collective or a message, which can be awaited. A failure that nobody
// retrieves is not an unhandled rejection: its promise is made by the first `then`. Knows nothing
// of copies.

import { InvalidArgumentError, InvalidTypeError, WaitTimeoutError } from "../generated/errors.js";
import { camelName, signalOf } from "./arguments.js";
import { textOf } from "./causes.js";
import { WorkResult } from "../generated/constants.js";
import { platform } from "./native.js";
import { ANYTHING, DURATION, expectAtMost, optionsOf } from "./options.js";

/** The name of the method by which Node gets what to show of an object. */
export const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/** The argument by which only this package can call `new Work`. */
export const INTERNAL = Symbol("polyrank.work");

/** A handle on an operation that was issued. */
export class Work {
  #operation;
  #value;
  #arrays;
  #settled = null;

  constructor(made, operation, value, arrays) {
    if (made !== INTERNAL) throw new InvalidTypeError("a Work is what operations return");
    this.#operation = operation;
    this.#value = value;
    this.#arrays = arrays;
  }

  then(onfulfilled, onrejected) {
    return this.#promise().then(onfulfilled, onrejected);
  }

  catch(onrejected) {
    return this.#promise().catch(onrejected);
  }

  finally(onfinally) {
    return this.#promise().finally(onfinally);
  }

  wait(options) {
    expectAtMost(1, "wait", arguments.length);
    const given = optionsOf("wait", options, WAIT_OPTIONS);
    const [limit, signal] = [limitOf(given.timeout), signalOf(given)];
    if (limit === null && signal === null) return this.#promise();
    return new Promise((resolve, reject) => this.#race(limit, signal, resolve, reject));
  }

  isCompleted() {
    expectAtMost(0, "isCompleted", arguments.length);
    this.#operation.poll();
    return this.#operation.state === "ended";
  }

  isSuccess() {
    expectAtMost(0, "isSuccess", arguments.length);
    return this.isCompleted() && this.#operation.failure === null;
  }

  exception() {
    expectAtMost(0, "exception", arguments.length);
    return this.isCompleted() ? (this.#operation.failure?.error ?? null) : null;
  }

  result() {
    expectAtMost(0, "result", arguments.length);
    return this.#operation.native.outputs.map((index) => this.#arrays[index]);
  }

  sourceRank() {
    expectAtMost(0, "sourceRank", arguments.length);
    const rank = this.isCompleted() ? (this.#operation.native.sourceRank() ?? null) : null;
    if (rank !== null) return rank;
    throw new InvalidArgumentError(
      "sourceRank() may only be called on work objects that correspond to a recv or " +
        "recv-from-any call that is complete.",
    );
  }

  getFuture() {
    expectAtMost(0, "getFuture", arguments.length);
    return this.#promise().then(() => this.result());
  }

  getFutureResult() {
    expectAtMost(0, "getFutureResult", arguments.length);
    return new Promise((resolve) => {
      this.#operation.whenEnded((failure) => resolve(codeOf(failure)));
    });
  }

  synchronize() {
    expectAtMost(0, "synchronize", arguments.length);
    return this.#promise();
  }

  get timeout() {
    return this.#operation.native.timeoutMs;
  }

  get sequence() {
    return this.#operation.native.sequence;
  }

  get duration() {
    this.isCompleted();
    return this.#operation.milliseconds();
  }

  get compressionError() {
    return this.isCompleted() ? (this.#operation.native.compressionError?.() ?? null) : null;
  }

  get [Symbol.toStringTag]() {
    return "Work";
  }

  /** What Node shows of it: `Work(allreduce #1 of default_pg, complete, 3 ms)`. */
  [INSPECT]() {
    return this.toString();
  }

  toString() {
    const isOver = this.isCompleted();
    const { native, failure } = this.#operation;
    const number = native.sequence < 0 ? "" : ` #${native.sequence}`;
    const group = native.groupName ? ` of ${native.groupName}` : "";
    const took = `${Math.round(this.#operation.milliseconds())} ms`;
    const state = !isOver ? "in flight" : failure === null ? "complete" : "failed";
    const why = isOver && failure !== null ? `: ${textOf(failure.error)}` : "";
    return `Work(${titleOf(native.name)}${number}${group}, ${state}, ${took}${why})`;
  }

  #promise() {
    this.#settled ??= new Promise((resolve, reject) => {
      platform.awaited?.(this.#operation);
      this.#operation.whenEnded((failure) => {
        if (failure === null) resolve(this.#value);
        else reject(failure.error);
      });
    });
    return this.#settled;
  }

  #race(limit, signal, resolve, reject) {
    let timer = null;
    const settle = (failure) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      this.#operation.forget(settle);
      if (failure === null) resolve(this.#value);
      else reject(failure.error);
    };
    const onAbort = () => settle({ error: signal.reason });
    if (signal?.aborted) return onAbort();
    this.#operation.poll();
    if (limit !== null && this.#operation.state !== "ended") {
      const started = performance.now();
      const expire = () => settle({ error: this.#expired(performance.now() - started) });
      timer = setTimeout(expire, limit);
    }
    signal?.addEventListener("abort", onAbort);
    return this.#operation.whenEnded(settle);
  }

  #expired(milliseconds) {
    const waited = Math.round(milliseconds);
    const { name, sequence } = this.#operation.native;
    const text = `${titleOf(name)} (operation ${sequence}) goes on`;
    return new WaitTimeoutError(`wait timed out after ${waited} ms; ${text}`, {
      collective: name,
      seq: sequence,
      sequence,
      waitedMs: waited,
    });
  }
}

/** The title of an operation in JavaScript: `allGather 'layer_1'`. */
function titleOf(name) {
  return name.replace(/^\w+/, camelName);
}

/** The operation of a handle where there is nothing to do. */
export const NOTHING_TO_DO = Object.freeze({
  state: "ended",
  failure: null,
  native: Object.freeze({
    name: "nothing",
    sequence: -1,
    groupName: null,
    timeoutMs: 0,
    outputs: Object.freeze([]),
    sourceRank: () => null,
  }),
  milliseconds: () => 0,
  poll: () => {},
  forget: () => {},
  whenEnded: (listener) => listener(null),
});

/** What a wait can be told. */
const WAIT_OPTIONS = { timeout: DURATION, signal: ANYTHING };

/** The longest time that timers accept. */
const MAX_TIMER_MS = 2 ** 31 - 1;

function limitOf(given) {
  const timeout = Number(given ?? 0);
  if (timeout === 0) return null;
  if (!(timeout > 0)) {
    throw new InvalidArgumentError(`wait(): 'timeout' must be at least 0, not ${timeout}`);
  }
  return timeout > MAX_TIMER_MS ? null : timeout;
}

function codeOf(failure) {
  if (failure === null) return WorkResult.SUCCESS;
  switch (failure.error?.kind) {
    case "CollectiveTimeout":
    case "RendezvousTimeout":
      return WorkResult.TIMEOUT;
    case "RankFailed":
    case "Rendezvous":
    case "Network":
    case "Aborted":
    case "Reconfigured":
      return WorkResult.COMM_ERROR;
    default:
      return WorkResult.UNKNOWN;
  }
}
