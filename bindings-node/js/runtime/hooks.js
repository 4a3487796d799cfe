// Hooks: functions of the user that run before and after the operations of a group, on the thread
// of the event loop. An operation of a group with hooks is prepared first; its hooks run when it is
// the first of its group's queue, immediately before it is copied in. Knows nothing of copies.

import { InvalidTypeError, asError, wrapped } from "../generated/errors.js";
import { argument, plainArguments, split } from "./arguments.js";
import { ReduceOp } from "../generated/constants.js";
import { textOf } from "./causes.js";
import { commName } from "./comm_name.js";
import { handleOf } from "./handles.js";
import { native, platform } from "./native.js";
import { ANYTHING, expectAtMost, expectFunction, optionsOf } from "./options.js";

/** The hooks of each group that has any, by the number of the group. */
const groups = new Map();

/** What is given to pre-hooks, and the operation that it describes, for `nanCheck`. */
const described = new WeakMap();

/** Whether a hook runs: what it issues itself has none. */
let isRunning = false;

class Hooks {
  pre = new Map();
  post = new Map();
  completion = new Map();
  abort = new Map();
  operations = 0;
  isWatched = false;

  isEmpty() {
    return this.pre.size + this.post.size + this.completion.size + this.abort.size === 0;
  }

  /** The hooks of one sort that there are now, with their numbers, in the order of those. */
  inOrder(sort) {
    return [...this[sort]].sort(([left], [right]) => (left < right ? -1 : 1));
  }
}

/** An operation with hooks, on its way. */
class HookedOperation {
  #hooks;
  #call;
  #facts;
  #args = null;
  #work = null;
  #isIssued = false;

  constructor(hooks, operation, facts, call) {
    const sorts = ["pre", "post", "completion"];
    this.#hooks = Object.fromEntries(sorts.map((sort) => [sort, hooks.inOrder(sort)]));
    this.#call = { operation, ...call };
    this.#facts = { facts, opId: hooks.operations, commName: call.commName };
    hooks.operations += 1;
  }

  /** Calls the pre-hooks, once. An error of one of them is thrown; the operation is not issued
   * then, and its group aborted. */
  before() {
    if (this.#args !== null) return;
    const { operation, tensors, arrays } = this.#call;
    const { facts: [name, rank, root, reduceOp, factor], opId, commName } = this.#facts;
    const pick = (positions) => Object.freeze(positions.map((position) => arrays[position]));
    this.#args = Object.freeze({
      name,
      rank,
      asyncOp: true,
      inputTensors: pick(operation.inputs),
      outputTensors: pick(operation.outputs),
      root,
      reduceOp: operatorOf(reduceOp, factor),
      opId,
      commName,
    });
    described.set(this.#args, { operation, tensors });
    this.#call = null;
    try {
      callBefore(this.#hooks.pre, this.#args, (why) => operation.refuse(why));
    } catch (error) {
      // It is given up now, and is not to be asked any more.
      described.delete(this.#args);
      throw error;
    }
  }

  /** It was issued. */
  issued() {
    this.#isIssued = true;
    described.delete(this.#args);
    this.#tellIssued();
  }

  /** `work` is its handle, and `operation` what that is of. */
  belongsTo(work, operation) {
    this.#work = work;
    this.#tellIssued();
    operation.whenEnded((failure) => {
      const { facts: [name], opId, commName } = this.#facts;
      const about = { name, opId, commName };
      complete(this.#hooks.completion, about, operation.milliseconds(), failure);
    });
  }

  #tellIssued() {
    if (!this.#isIssued || this.#work === null) return;
    const { name, opId, commName } = this.#args;
    const args = Object.freeze({ name, opId, work: this.#work, commName });
    for (const [, hook] of this.#hooks.post) harmless(() => hook(args));
  }
}

/** Adds a hook to a group: what `register…Hook` does. */
function registered(sort) {
  return (spec, group, given) => {
    const call = checked(spec, given, HOOK);
    const id = idOf(spec, argument(call, 0, "hookId"));
    const hook = argument(call, 1, "hook");
    expectFunction(spec.name, "hook", hook);
    const handle = groupHandle(spec, group);
    // One that was destroyed is refused.
    wrapped(() => native.checkMembers(handle, undefined, spec.name));
    const hooks = groups.get(handle.id) ?? new Hooks();
    groups.set(handle.id, hooks);
    hooks[sort].set(id, hook);
    if (sort !== "abort" || hooks.isWatched) return;
    hooks.isWatched = true;
    native.watchFailure(handle);
  };
}

/** Takes a hook from a group: what `unregister…Hook` does. */
function unregistered(sort) {
  return (spec, group, given) => {
    const id = idOf(spec, argument(checked(spec, given, HOOK_ID), 0, "hookId"));
    const { id: identity } = groupHandle(spec, group);
    const hooks = groups.get(identity);
    hooks?.[sort].delete(id);
    // One that is watched stays: what watches it does, too.
    if (hooks?.isEmpty() && !hooks.isWatched) groups.delete(identity);
  };
}

/** What the calls take, by position or by name. */
const HOOK_ID = { hookId: ANYTHING };
const HOOK = { ...HOOK_ID, hook: ANYTHING };

/** A call's arguments, of which there are no others than `parameters`. */
function checked(spec, given, parameters) {
  const call = split(spec, given);
  optionsOf(spec.name, call.options, parameters);
  expectAtMost(Object.keys(parameters).length, spec.name, call.positional.length);
  return call;
}

export const registerPreHook = registered("pre");
export const unregisterPreHook = unregistered("pre");
export const registerPostHook = registered("post");
export const unregisterPostHook = unregistered("post");
export const registerCompletionHook = registered("completion");
export const unregisterCompletionHook = unregistered("completion");
export const registerAbortHook = registered("abort");
export const unregisterAbortHook = unregistered("abort");

/** A hook that throws where an input is not finite. */
export function nanCheck(spec, given) {
  const call = split(spec, given);
  const { args: positional, keywords } = plainArguments(spec, call);
  // The core refuses what no hook could be made of.
  wrapped(() => native.resolve(null, spec.key, positional, keywords));
  const allowInfinity = argument(call, 0, "allowInfinity") ?? false;
  return (args) => {
    const known = described.get(args);
    if (known === undefined) {
      throw new InvalidTypeError(
        "nanCheck()(args): expected what a pre-hook is given, before its operation is issued",
      );
    }
    known.operation.checkFinite(known.tensors, allowInfinity);
  };
}

/** Whether any group has hooks. */
export function hasHooks() {
  return groups.size > 0;
}

/** The hooks that operations of this group have, if they have any. */
export function hooksOf(identity) {
  const hooks = isRunning ? undefined : groups.get(identity);
  if (hooks === undefined) return null;
  return hooks.pre.size + hooks.post.size + hooks.completion.size > 0 ? hooks : null;
}

/** A prepared operation of a group with `hooks`; null if it has none, as where it does nothing. */
export function hooked(hooks, operation, call) {
  const facts = operation.facts() ?? null;
  return facts === null ? null : new HookedOperation(hooks, operation, facts, call);
}

/** Forgets the hooks of a group that is left. */
export function forgetHooks(identity) {
  groups.delete(identity);
}

/** An operation is about to report that it failed: abort hooks come first. */
export function tellOfFailures() {
  if (groups.size > 0) native.takeFailures().forEach(tellOfFailure);
}

/** A group has failed, and not by this rank's own will. */
export function tellOfFailure(identity) {
  const hooks = groups.get(identity);
  if (hooks === undefined) return;
  for (const [, hook] of hooks.inOrder("abort")) harmless(() => hook());
}

/** Calls the hooks before an operation on objects, and those that tell of its end. `refuse` is
 * called with the reason if a hook throws. */
export function aroundObjects(hooks, { name, rank, root }, refuse, run) {
  const none = Object.freeze([]);
  const opId = hooks.operations;
  const about = {
    name, rank, asyncOp: true, root, reduceOp: null, opId, commName: commName(),
  };
  hooks.operations += 1;
  const completion = hooks.inOrder("completion");
  const args = Object.freeze({ ...about, inputTensors: none, outputTensors: none });
  try {
    callBefore(hooks.inOrder("pre"), args, refuse);
  } catch (error) {
    return Promise.reject(error);
  }
  const began = performance.now();
  const ended = (failure) => complete(completion, about, performance.now() - began, failure);
  const answer = run();
  answer.then(() => ended(null), (error) => ended({ error }));
  return answer;
}

function callBefore(hooks, args, refuse) {
  for (const [id, hook] of hooks) {
    try {
      const returned = inHook(() => hook(args));
      if (typeof returned?.then === "function") {
        // What it ends with comes too late to be told.
        Promise.resolve(returned).catch(() => {});
        throw new InvalidTypeError(
          "a pre-hook is called before its operation, which does not wait for a promise",
        );
      }
    } catch (error) {
      const failure = asError(error);
      const called = args.commName === null ? "" : ` '${args.commName}'`;
      refuse(`its pre-hook ${id} stopped ${args.name}${called} #${args.opId}: ${textOf(failure)}`);
      throw failure;
    }
  }
}

function complete(hooks, { name, opId, commName }, duration, failure) {
  const error = failure?.error ?? null;
  const args = Object.freeze({ name, opId, duration, error, commName });
  for (const [, hook] of hooks) harmless(() => hook(args));
}

/** Runs a hook: what it issues itself has none. */
function inHook(run) {
  const isNested = isRunning;
  isRunning = true;
  try {
    return run();
  } finally {
    isRunning = isNested;
  }
}

/** Runs a hook that must not disturb the operation; what it throws, also later, is reported. */
function harmless(run) {
  const report = (error) => platform.warn(`a hook failed: ${stackOf(error)}`);
  try {
    const returned = inHook(run);
    if (typeof returned?.then === "function") Promise.resolve(returned).catch(report);
  } catch (error) {
    report(error);
  }
}

function operatorOf(code, factor) {
  if ((factor ?? null) !== null) return ReduceOp.premulSum(factor);
  return Object.values(ReduceOp).find((known) => known.value === code) ?? null;
}

function groupHandle(spec, group) {
  const handle = handleOf(group);
  if (handle?.type === "ProcessGroup") return handle;
  throw new InvalidTypeError(`${spec.name}() needs its group: write group.${spec.name}(…)`);
}

/** A number of a hook, exact. */
function idOf(spec, id) {
  if (Number.isSafeInteger(id)) return BigInt(id);
  if (typeof id === "bigint" && BigInt.asIntN(64, id) === id) return id;
  throw new InvalidTypeError(`${spec.name}(): 'hookId' must be an integer, not ${String(id)}`);
}

function stackOf(error) {
  try {
    return String(error?.stack ?? error);
  } catch {
    return textOf(error);
  }
}
