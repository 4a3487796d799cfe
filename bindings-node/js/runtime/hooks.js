// Hooks: functions of the user that run before and after the operations of a group, on the thread
// of the event loop. An operation of a group with hooks is prepared first, and begun when its hooks
// have run. Knows nothing of copies.

import { InvalidTypeError, asError } from "../generated/errors.js";
import { argument, split } from "./arguments.js";
import { ReduceOp } from "../generated/constants.js";
import { handleOf } from "./handles.js";
import { platform } from "./native.js";

/** The hooks of each group that has any, by the number of the group. */
const groups = new Map();

/** What is given to hooks, and the operation that it describes, for `nanCheck`. */
const described = new WeakMap();

class Hooks {
  pre = new Map();
  post = new Map();
  completion = new Map();
  abort = new Map();
  operations = 0;
  hasToldOfAbort = false;
  isRunning = false;

  isEmpty() {
    return this.pre.size + this.post.size + this.completion.size + this.abort.size === 0;
  }

  /** Calls the hooks of one sort in the order of their numbers. What they issue has no hooks. */
  run(sort, call) {
    if (this.isRunning) return;
    this.isRunning = true;
    try {
      for (const id of [...this[sort].keys()].sort(ascending)) {
        const hook = this[sort].get(id);
        if (hook !== undefined) call(hook, id);
      }
    } finally {
      this.isRunning = false;
    }
  }
}

function ascending(left, right) {
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Adds a hook to a group: what `register…Hook` does. */
function registered(sort) {
  return (spec, group, given) => {
    const call = split(spec, given);
    const id = idOf(spec, argument(call, 0, "hookId"));
    const hook = argument(call, 1, "hook");
    if (typeof hook !== "function") {
      throw new InvalidTypeError(`${spec.name}(): 'hook' must be a function, not ${typeof hook}`);
    }
    const identity = identityOf(spec, group);
    const hooks = groups.get(identity) ?? new Hooks();
    groups.set(identity, hooks);
    hooks[sort].set(id, hook);
  };
}

/** Takes a hook from a group: what `unregister…Hook` does. */
function unregistered(sort) {
  return (spec, group, given) => {
    const id = idOf(spec, argument(split(spec, given), 0, "hookId"));
    const identity = identityOf(spec, group);
    const hooks = groups.get(identity);
    hooks?.[sort].delete(id);
    if (hooks?.isEmpty()) groups.delete(identity);
  };
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
  const allowInfinity = argument(call, 0, "allowInfinity") ?? false;
  return (args) => {
    const known = described.get(args);
    if (known === undefined) {
      throw new InvalidTypeError("nanCheck()(): expected what a pre-hook is given");
    }
    known.operation.checkFinite(known.tensors, allowInfinity);
  };
}

/** Whether any group has hooks. */
export function hasHooks() {
  return groups.size > 0;
}

/** Forgets the hooks of a group that is left. */
export function forgetHooks(identity) {
  groups.delete(identity);
}

/** Calls the hooks before a prepared operation; what is to be told of it later, or null. An error
 * of a hook gives it up: its group is aborted, for this reason. */
export function before(operation, { tensors, arrays }, asyncOp) {
  const hooks = groups.get(operation.group);
  const facts = hooks === undefined || hooks.isRunning ? null : operation.facts() ?? null;
  if (facts === null) return null;
  const [name, rank, root, reduceOp, factor] = facts;
  const pick = (positions) => Object.freeze(positions.map((position) => arrays[position]));
  const args = Object.freeze({
    name,
    rank,
    asyncOp,
    inputTensors: pick(operation.inputs),
    outputTensors: pick(operation.outputs),
    root,
    reduceOp: operatorOf(reduceOp, factor),
    opId: hooks.operations,
  });
  hooks.operations += 1;
  described.set(args, { operation, tensors });
  callBefore(hooks, args, (why) => operation.giveUp(why));
  return { hooks, name, opId: args.opId };
}

/** Calls the hooks before an operation on objects, and those that tell of its end. `abort` is
 * called with the reason if a hook throws. */
export function aroundObjects(identity, { name, rank }, abort, run) {
  const hooks = groups.get(identity);
  if (hooks === undefined || hooks.isRunning) return run();
  const none = Object.freeze([]);
  const about = { name, rank, asyncOp: true, root: -1, reduceOp: null, opId: hooks.operations };
  hooks.operations += 1;
  callBefore(hooks, Object.freeze({ ...about, inputTensors: none, outputTensors: none }), abort);
  const began = performance.now();
  const told = { hooks, name, opId: about.opId };
  const ended = (failure) => complete(told, performance.now() - began, failure);
  const answer = run();
  answer.then(() => ended(null), (error) => ended({ error }));
  return answer;
}

/** Calls the hooks after an operation was issued, as `work`, and has those called that tell of its
 * end. */
export function after(told, operation, work) {
  const { hooks, name, opId } = told;
  const args = Object.freeze({ name, opId, work });
  hooks.run("post", (hook) => harmless(() => hook(args)));
  operation.whenEnded((failure) => {
    if (failure !== null && operation.native.isGroupBroken()) tellOfAbort(hooks);
    complete(told, operation.milliseconds(), failure);
  });
}

function callBefore(hooks, args, giveUp) {
  hooks.run("pre", (hook, id) => {
    try {
      hook(args);
    } catch (error) {
      const failure = asError(error);
      giveUp(`its pre-hook ${id} stopped ${args.name} #${args.opId}: ${textOf(failure)}`);
      throw failure;
    }
  });
}

function complete({ hooks, name, opId }, duration, failure) {
  if (hooks.completion.size === 0) return;
  const args = Object.freeze({ name, opId, duration, error: failure?.error ?? null });
  hooks.run("completion", (hook) => harmless(() => hook(args)));
}

function tellOfAbort(hooks) {
  if (hooks.hasToldOfAbort) return;
  hooks.hasToldOfAbort = true;
  hooks.run("abort", (hook) => harmless(() => hook()));
}

/** Runs what must not disturb the operation; what it throws is reported. */
function harmless(run) {
  try {
    run();
  } catch (error) {
    platform.warn(`a hook failed: ${error?.stack ?? error}`);
  }
}

function operatorOf(code, factor) {
  if ((factor ?? null) !== null) return ReduceOp.premulSum(factor);
  return Object.values(ReduceOp).find((known) => known.value === code) ?? null;
}

function identityOf(spec, group) {
  const handle = handleOf(group);
  if (handle?.type === "ProcessGroup") return handle.id;
  throw new InvalidTypeError(`${spec.name}() needs its group: write group.${spec.name}(…)`);
}

function idOf(spec, id) {
  if (Number.isSafeInteger(id)) return id;
  if (typeof id === "bigint" && BigInt.asIntN(64, id) === id) return Number(id);
  throw new InvalidTypeError(`${spec.name}(): 'hookId' must be an integer, not ${String(id)}`);
}

function textOf(error) {
  return error?.message ?? String(error);
}
