// Operations that are prepared once and started often. Each start is what an ordinary call is, but
// for what that would find out about its arguments. Where those calls are short (see short.js), the
// native half keeps what was prepared, and is given nothing but the arrays. Knows no collective.

import { camelName, copied, signalOf, split, tensorArguments } from "./arguments.js";
import { operate, outputOf, receiver, workOf } from "./calls.js";
import { commName } from "./comm_name.js";
import { InvalidTypeError, asError, wrapped } from "../generated/errors.js";
import { hasHooks } from "./hooks.js";
import { isNothingInUse } from "./memory_in_use.js";
import { native } from "./native.js";
import { allowance } from "./operations.js";
import { expectAtMost } from "./options.js";
import { isIdle } from "./queues.js";
import { DoneOperation } from "./short.js";
import { elementsOf } from "./tensors.js";
import { isTypedArray } from "./views.js";
import { INSPECT, INTERNAL, NOTHING_TO_DO, Work } from "./work.js";

/** Who may make a prepared operation. */
const PREPARED = Symbol("prepared");

/** What `run` gives for an operation that is done when it returns. */
const DONE = Promise.resolve();

/** Most arrays of a short call. */
const MAX_ARRAYS = 2;

/** An operation that is started again and again. */
export class PreparedOperation {
  #prepared;
  /** The native half's prepared call; null: it has none. */
  #short;
  #first;
  #second;
  #bytes;
  /** The handle of the last start, `DONE` if that has none, or null. */
  #last = null;

  constructor(made, prepared) {
    if (made !== PREPARED) {
      const text = "a PreparedOperation is made by ProcessGroup.prepareAllreduce() and the like";
      throw new InvalidTypeError(text);
    }
    this.#prepared = prepared;
    this.#short = prepared.short;
    [this.#first, this.#second = null] = prepared.arrays;
    this.#bytes = prepared.bytes;
  }

  /** Starts the operation, in the order of calls, and behind an earlier start of it. */
  start() {
    expectAtMost(0, "start", arguments.length);
    this.#last = this.#prepared.handle(this.#tryShort());
    return this.#last;
  }

  /** Starts the operation and waits for it. */
  run() {
    expectAtMost(0, "run", arguments.length);
    try {
      const outcome = this.#tryShort();
      if (typeof outcome === "number") {
        this.#last = DONE;
        return DONE;
      }
      this.#last = this.#prepared.handle(outcome);
      return this.#last.then(nothing);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Waits for the last start, as a wait for its work does. */
  wait(...given) {
    const last = this.#last;
    if (last !== null && last !== DONE) return last.wait(...given);
    const value = last === null ? undefined : this.#prepared.value;
    return new Work(INTERNAL, NOTHING_TO_DO, value, []).wait(...given);
  }

  get [Symbol.toStringTag]() {
    return "PreparedOperation";
  }

  /** What Node shows of it: `PreparedOperation(allreduce of 4 f32 in default_pg)`. */
  [INSPECT]() {
    return this.toString();
  }

  toString() {
    return `PreparedOperation(${this.#prepared.title()})`;
  }

  /** Starts it as a short call: as `runPrepared` of the native half; null: nothing happened, as
   * where an earlier start still has the arrays, and the ordinary call waits in line. */
  #tryShort() {
    if (this.#short === null || !isIdle() || !isNothingInUse()) return null;
    if (hasHooks() || commName() !== null) return null;
    const maxCopied = allowance(this.#bytes);
    return native.runPrepared(this.#short, this.#first, this.#second, maxCopied);
  }
}

/** A call whose arguments are right. */
class PreparedCall {
  #given;
  #handle;
  #members;

  /** The native half's prepared call; null: it has none, or not of this one. */
  short = null;

  constructor(spec, group, given) {
    // The caller may change what it gave, and gets what it gave itself.
    this.value = outputOf(spec, split(spec, given));
    this.#given = copied(spec, given);
    const call = split(spec, this.#given);
    const signal = signalOf(call.options);
    this.#handle = receiver(spec, group);
    this.spec = spec;
    this.group = group;
    this.#members = this.#membersNow();
    const { args, keywords, tensors, infos, arrays, bytes } = tensorArguments(spec, call);
    const checked = wrapped(() => {
      return native.prepare(this.#handle, spec.key, args, keywords, tensors, infos, -1);
    });
    this.arrays = arrays;
    this.bytes = bytes;
    this.timeoutMs = checked.timeoutMs;
    this.source = spec.prepares === "recv" ? call.positional[1] : null;
    const isUsual = arrays.length <= MAX_ARRAYS && arrays.every(isTypedArray);
    if (isUsual && signal === null) this.short = checked.prepared() ?? null;
    checked.end();
  }

  /** The handle of a start, of which the native half's short call says `outcome`. */
  handle(outcome) {
    if (outcome === null) {
      this.#membersNow(this.#members);
      return operate(this.spec, this.group, this.#given, this.value);
    }
    const isDone = typeof outcome === "number";
    const short = isDone ? new DoneOperation(new StartedWork(this, outcome)) : outcome;
    return workOf(short, this.value, this.arrays);
  }

  title() {
    const name = camelName(this.spec.prepares);
    const [tensor] = this.arrays;
    const what = tensor === undefined ? name : `${name} of ${elementsOf(tensor)}`;
    return `${what} in ${this.group.groupName}`;
  }

  /** The number of the members that the group has now, which must be the `known` ones. */
  #membersNow(known) {
    try {
      return native.checkMembers(this.#handle, known, this.spec.prepares);
    } catch (error) {
      throw asError(error);
    }
  }
}

/** The native half of a start that was done when its call returned. */
class StartedWork {
  #call;
  #outcome;

  constructor(call, outcome) {
    this.#call = call;
    this.#outcome = outcome;
  }

  get name() {
    return this.#call.spec.prepares;
  }

  get sequence() {
    return this.#outcome < 0 ? -1 - this.#outcome : this.#outcome;
  }

  get outputs() {
    const { output } = this.#call.spec;
    return this.#outcome < 0 || output === null ? [] : [output];
  }

  get groupName() {
    return this.#call.group.groupName;
  }

  get timeoutMs() {
    return this.#call.timeoutMs;
  }

  sourceRank() {
    return this.#call.source;
  }
}

/** Prepares a call of a group. Wrong arguments throw. */
export function prepare(spec, group, given) {
  return new PreparedOperation(PREPARED, new PreparedCall(spec, group, given));
}

function nothing() {}
