// Calls of the native half: converts arguments and results, and makes errors of their classes. A
// method is described by a record, `spec`:
//
// - `key`: its name in the core's tables; `name`: its name in JavaScript, for messages;
// - `required`: how many arguments must be given; `durations`: the indices of lengths of time;
// - `group`, `output`: the indices of the group and of the result (null: none); `groupName`,
//   `outputName`: their names among the options;
// - `gives`: what it returns: "nothing", "integer", "group", or anything else if not set;
// - `nonMember`: the result for a process that is not in the group; not set: an error;
// - `inOrder`: the call begins after the earlier collectives of its groups, unless it makes a group
//   beside them; `leaves`: it leaves them, after the earlier messages, too; `message`: it is a
//   message.

import {
  argument,
  camelName,
  flatTensors,
  plainArguments,
  signalOf,
  split,
  tensorArguments,
} from "./arguments.js";
import {
  InvalidArgumentError,
  InvalidGroupError,
  InvalidTypeError,
  NotInitializedError,
  UnsupportedError,
  asError,
  wrapped,
} from "../generated/errors.js";
import { answerOf, handleOf, isHandle, receiverOf, wrap } from "./handles.js";
import {
  ALL,
  COLLECTIVES,
  MESSAGES,
  RECEIVES,
  SENDS,
  concurrently,
  inOrder,
  inOrderOrAfterAbort,
} from "./queues.js";
import { commName, named } from "./comm_name.js";
import { CudaTensor } from "./cuda.js";
import { forgetHooks, hasHooks, hooked, hooksOf } from "./hooks.js";
import { NON_GROUP_MEMBER } from "./members.js";
import { native, platform } from "./native.js";
import { allowance, follow, start } from "./operations.js";
import { DoneOperation, areInPlace, arraysOf, runShort } from "./short.js";
import { untilAborted } from "./signals.js";
import { INTERNAL, NOTHING_TO_DO, Work } from "./work.js";

/** A call that does not wait: its value. */
export function invoke(spec, self, given) {
  const call = split(spec, given);
  if (isNonMember(spec, call)) return nonMemberResult(spec);
  const { args, keywords } = plainArguments(spec, call);
  const handle = receiver(spec, self);
  return answer(spec, wrapped(() => native.invoke(handle, spec.key, args, keywords)));
}

/** A call that waits: wrong arguments throw here, what fails later rejects. `watch` is given what
 * the native half promises, which a signal does not end immediately. */
export function invokeAsync(spec, self, given, watch) {
  const call = split(spec, given);
  const signal = signalOf(call.options);
  if (isNonMember(spec, call)) return Promise.resolve(nonMemberResult(spec));
  const { args, keywords } = plainArguments(spec, call);
  const isExact = args.some((value) => typeof value === "bigint");
  return invokeNative(spec, self, args, keywords, signal, watch).then((value) => {
    if (spec.gives === "integer") return isExact ? BigInt(value) : exactNumber(spec, value);
    return answerOf(self, spec.name, value) ?? answer(spec, value);
  });
}

/** As `invokeAsync`, with neutral arguments and the native half's own result. A call of a group
 * begins when it is its turn there. */
export function invokeNative(spec, self, args, keywords, signal, watch) {
  const handle = receiver(spec, self);
  if (spec.inOrder === true) {
    const call = resolved(spec, handle, args, keywords);
    return untilAborted(signal, (cancellation) => {
      const begin = () => {
        const answer = begun(call, cancellation);
        // Until now there was nothing to cancel.
        if (signal?.aborted) native.cancel(cancellation);
        return answer;
      };
      const [group] = call.groups;
      if (group !== undefined && call.isConcurrent) return concurrently(group, begin);
      if (spec.leaves !== true) return inOrder(call.groups, begin);
      const abort = () => call.abortGroups();
      // A call that has begun cannot be asked any more.
      const { groups } = call;
      const left = inOrderOrAfterAbort(groups, begin, native.shutdownLimitMs(), abort);
      // Hooks may hold what holds their group.
      return left.finally(() => groups.forEach(forgetHooks));
    });
  }
  return untilAborted(signal, (cancellation) => {
    const promise = wrapped(() => {
      return native.invokeAsync(handle, spec.key, args, keywords, cancellation);
    });
    watch?.(promise);
    return promise.catch((error) => {
      throw asError(error);
    });
  });
}

/** A call, with neutral arguments, that has not begun. Wrong arguments throw. */
export function resolved(spec, handle, args, keywords) {
  return named(commName(), () => {
    return wrapped(() => native.resolve(handle, spec.key, args, keywords));
  });
}

/** The native half's own result of a resolved call, which begins now. */
export function begun(call, cancellation) {
  return wrapped(() => call.begin(cancellation)).catch((error) => {
    throw asError(error);
  });
}

/** A native object that a constructor makes. */
export function make(spec, given) {
  const { args, keywords } = plainArguments(spec, split(spec, given));
  return wrapped(() => native.invoke(null, spec.key, args, keywords));
}

/** A collective or a message: its handle. `output` is what that resolves with, where `values` are a
 * copy of what the caller gave. */
export function operate(spec, self, values, output) {
  const hooks = hasHooks() ? hooksOfCall(spec, self, split(spec, values)) : null;
  const name = commName();
  const isUsual = hooks === null && name === null && spec.prepares === undefined;
  const short = isUsual ? runShort(spec, self, values, allowance) : null;
  if (short !== null) return shortWork(spec, short, values);
  const call = split(spec, values);
  const value = output ?? outputOf(spec, call);
  const signal = signalOf(call.options);
  if (isNonMember(spec, call)) return nonMemberWork(spec, value);
  if (signal?.aborted) return failed(signal.reason, value);
  const handle = receiver(spec, self);
  const given = tensorArguments(spec, call);
  const { args, keywords, tensors, infos, arrays } = given;
  const prepare = (maxEagerBytes) => named(name, () => wrapped(() => {
    return native.prepare(handle, spec.key, args, keywords, tensors, infos, maxEagerBytes);
  }));
  const way = { hook: hookOf(hooks, given, name), orders: ordersOf(spec, arrays) };
  const operation = start(given, groupOf(spec, call, handle), prepare, way);
  const work = new Work(INTERNAL, operation, value, arrays);
  operation.hooked?.belongsTo(work, operation);
  if (signal !== null) endWith(signal, operation);
  return work;
}

/** What an operation resolves with. */
export function outputOf(spec, call) {
  return spec.output === null ? undefined : argument(call, spec.output, spec.outputName);
}

/** The orders of its group in which an operation has its place. On a device everything runs in the
 * order in which it was issued, which has to be the same on all ranks: messages, too. */
function ordersOf(spec, arrays) {
  if (spec.message !== true) return COLLECTIVES;
  if (arrays.some((array) => array instanceof CudaTensor)) return ALL;
  if (spec.output === null) return SENDS;
  // What is received comes first, but where something is sent as well.
  return spec.output === 0 ? RECEIVES : MESSAGES;
}

/** What gives a prepared operation its hooks. */
function hookOf(hooks, call, commName) {
  if (hooks === null) return null;
  return (prepared) => hooked(hooks, prepared, { ...call, commName });
}

/** The hooks of the group of a call, if it has any. */
function hooksOfCall(spec, self, call) {
  if (self === null && isNonMember(spec, call)) return null;
  const handle = self === null ? groupOf(spec, call, null) : handleOf(self);
  if (handle !== null) return hooksOf(handle.id);
  try {
    const group = native.invoke(null, DEFAULT_GROUP, [], null);
    const { id } = group;
    group.free?.();
    return hooksOf(id);
  } catch {
    // There is none, as the call will find.
    return null;
  }
}

const DEFAULT_GROUP = "DISTRIBUTED_DEFAULT_GROUP";

/** The handle of a short call that is done, or continues as a work of the native half. */
function shortWork(spec, short, values) {
  const arrays = arraysOf(values);
  const value = spec.output === null ? undefined : arrays[spec.output];
  return workOf(short, value, arrays);
}

/** The handle of a `DoneOperation`, or of a work of the native half that continues, on `arrays`. */
export function workOf(short, value, arrays) {
  if (short instanceof DoneOperation) return new Work(INTERNAL, short, value, arrays);
  const operation = follow(short, flatTensors(arrays, areInPlace(arrays)));
  return new Work(INTERNAL, operation, value, arrays);
}

/** Messages of tensors on devices, of one group, that are issued together: the handle of each,
 * which is that of all. */
export function operateTogether(messages) {
  const parts = messages.map(({ spec, values }) => {
    const call = split(spec, values);
    return { spec, call, ...tensorArguments(spec, call) };
  });
  const [{ spec, call }] = parts;
  const of = (what) => parts.flatMap((part) => part[what]);
  const arrays = of("arrays");
  const all = { tensors: of("tensors"), infos: of("infos"), views: of("views"), arrays, bytes: 0 };
  const hooks = hasHooks() ? hooksOfCall(spec, null, call) : null;
  const calls = parts.map(({ spec: { key }, args, keywords, tensors, infos }) => {
    return [key, args, keywords, tensors, infos];
  });
  const name = commName();
  const prepare = (maxEagerBytes) => named(name, () => {
    return wrapped(() => native.prepareTogether(calls, maxEagerBytes));
  });
  const way = { hook: hookOf(hooks, all, name), orders: ALL };
  const operation = start(all, groupOf(spec, call, null), prepare, way);
  const works = parts.map(({ spec, call }) => {
    return new Work(INTERNAL, operation, outputOf(spec, call), arrays);
  });
  operation.hooked?.belongsTo(works[0], operation);
  return works;
}

/** Leaves a group cleanly, and removes it from the default registry if that still knows it. Leaving
 * twice is harmless. */
export async function leave(group, destroy, shutdown) {
  try {
    await invokeAsync(destroy, null, [group]);
  } catch (error) {
    const isUnknown = error instanceof InvalidGroupError || error instanceof NotInitializedError;
    if (!isUnknown) throw error;
    await invokeAsync(shutdown, group, []);
  }
}

/** A call of something that is declared in the IDL but not implemented. */
export function unsupported(path) {
  const who = `polyrank ${native.version()}`;
  const operation = camelName(path);
  const text = `${who} does not support ${operation}`;
  throw new UnsupportedError(text, { who, operation });
}

/** Whether a call is for a group that this process is not in. */
export function isNonMember(spec, call) {
  if (spec.group === undefined) return false;
  return argument(call, spec.group, spec.groupName) === NON_GROUP_MEMBER;
}

/** The result of a function in a process that is not in the group. */
export function nonMemberResult(spec) {
  if (spec.nonMember !== undefined) return spec.nonMember ?? undefined;
  const message = "this process is not a member of it";
  throw new InvalidGroupError(`Invalid process group specified: ${message}`, {});
}

/** The native half of the group of an operation; none for the default group. */
function groupOf(spec, call, handle) {
  if (handle !== null || spec.group === undefined) return handle;
  const given = argument(call, spec.group, spec.groupName);
  return typeof given === "object" && given !== null ? handleOf(given) : null;
}

/** The native half of the object that a method is called on; none for a function. */
export function receiver(spec, self) {
  if (self === null) return null;
  const handle = receiverOf(self, spec.name);
  if (handle !== null) return handle;
  const name = spec.name ?? "this attribute";
  throw new InvalidTypeError(
    `${name} needs its object: write group.${name}(…), or bind it: group.${name}.bind(group)`,
  );
}

function answer(spec, value) {
  if (value === null || value === undefined) {
    return spec.gives === "group" ? NON_GROUP_MEMBER : spec.gives === "nothing" ? undefined : null;
  }
  if (spec.gives === "nothing") return undefined;
  return converted(value);
}

/** An integer as a number, if numbers have all its digits. */
function exactNumber(spec, value) {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  throw new InvalidArgumentError(
    `${spec.name}(): this took effect, and the result is ${value}: that is beyond 2^53, ` +
      "where numbers are not exact integers; give a BigInt to get one",
  );
}

function converted(value) {
  if (typeof value === "bigint") return Number(value);
  if (typeof value !== "object" || value === null) return value;
  if (isHandle(value)) return wrap(value);
  return Array.isArray(value) ? value.map(converted) : value;
}

function nonMemberWork(spec, value) {
  platform.warn(
    `Running ${spec.name} in a process which does not belong to the given group does nothing.`,
  );
  return new Work(INTERNAL, NOTHING_TO_DO, value, []);
}

function failed(reason, value) {
  const failure = { error: reason };
  const ended = { ...NOTHING_TO_DO, failure, whenEnded: (listener) => listener(failure) };
  return new Work(INTERNAL, ended, value, []);
}

function endWith(signal, operation) {
  // A hook may have aborted it.
  if (signal.aborted) return operation.abandon(signal.reason);
  const onAbort = () => operation.abandon(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  operation.whenEnded(() => signal.removeEventListener("abort", onAbort));
}
