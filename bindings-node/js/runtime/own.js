// What exists only in JavaScript: the current group, rendezvous at a URL, messages issued together,
// the names of backends.

import { Backend } from "../generated/constants.js";
import { Marked, argument, duration, plainArguments, signalOf, split } from "./arguments.js";
import { invoke, invokeAsync, invokeNative, operateTogether, resolved } from "./calls.js";
import { CudaTensor } from "./cuda.js";
import {
  InvalidArgumentError,
  InvalidTypeError,
  RendezvousError,
  UnknownBackendError,
  asError,
  wrapped,
} from "../generated/errors.js";
import { isStore } from "./foreign_stores.js";
import { handleOf, wrap } from "./handles.js";
import { NON_GROUP_MEMBER } from "./members.js";
import { native, platform } from "./native.js";
import {
  ANYTHING,
  DURATION,
  NUMBER,
  expectAtMost,
  expectFunction,
  optionsOf,
  told,
} from "./options.js";
import { Tensor, inOwnMemory, infoInOwnMemory, isArray, tensorOver } from "./tensors.js";
import { typeName } from "./views.js";

export { probe } from "./probes.js";
export { reconfigure, shrinkGroup } from "./reconfigure.js";

/** Default limit of a group's operations, ms. */
export const DEFAULT_TIMEOUT_MS = 30 * 60 * 1000;

const WHY_NOT = { key: "DISTRIBUTED_BACKEND_UNAVAILABLE_REASON", required: 1 };

/** Validates a backend name and returns it in lower case. */
export function parseBackend(name) {
  expectAtMost(1, "parseBackend", arguments.length);
  const lower = String(name).toLowerCase();
  if (Object.values(Backend).includes(lower)) return lower;
  // The core has the list of all that there are, and the words for others.
  const text = invoke(WHY_NOT, null, [String(name)]);
  throw new UnknownBackendError(text, {
    backend: String(name),
    known: text.slice(text.lastIndexOf(": ") + 2),
  });
}

/** Runs `callback` with `group` as the current group, through everything that it awaits. */
export function withProcessGroup(group, callback) {
  expectAtMost(2, "withProcessGroup", arguments.length);
  if (handleOf(group)?.type !== "ProcessGroup") {
    throw new InvalidTypeError("withProcessGroup(): 'group' must be a ProcessGroup");
  }
  expectFunction("withProcessGroup", "callback", callback);
  refuseDestroyed(group, "withProcessGroup");
  return platform.currentGroup.run(group, callback);
}

const DEFAULT_GROUP = { key: "DISTRIBUTED_DEFAULT_GROUP", required: 0 };

/** The group of the innermost `withProcessGroup`, else the default group. */
export function currentProcessGroup() {
  expectAtMost(0, "currentProcessGroup", arguments.length);
  const group = platform.currentGroup.get() ?? null;
  if (group === null) return invoke(DEFAULT_GROUP, null, []);
  refuseDestroyed(group, "currentProcessGroup");
  return group;
}

/** Refuses a group that was destroyed. */
function refuseDestroyed(group, method) {
  wrapped(() => native.checkMembers(handleOf(group), undefined, method));
}

const handlers = new Map();
const RENDEZVOUS = { key: "DISTRIBUTED_RENDEZVOUS", required: 1 };

/** Adds a URL scheme to later calls of this realm. */
export function registerRendezvousHandler(scheme, handler) {
  expectAtMost(2, "registerRendezvousHandler", arguments.length);
  if (typeof scheme !== "string") {
    const came = told(scheme);
    throw new InvalidTypeError(
      `registerRendezvousHandler(): 'scheme' must be a string, not ${came}`,
    );
  }
  expectFunction("registerRendezvousHandler", "handler", handler);
  if (handlers.has(scheme) || BUILT_IN.has(scheme)) {
    throw new RendezvousError(`the URL scheme '${scheme}' has a rendezvous handler already`, {});
  }
  handlers.set(scheme, handler);
}

const RENDEZVOUS_OPTIONS = {
  rank: NUMBER,
  worldSize: NUMBER,
  timeout: DURATION,
  signal: ANYTHING,
};

const BUILT_IN = new Set(["env", "tcp", "file", "ws", "wss"]);

/** Meets the other ranks at a URL, once: the store, the rank and the world size. */
export function rendezvous(url, options) {
  expectAtMost(2, "rendezvous", arguments.length);
  const given = optionsOf("rendezvous", options, RENDEZVOUS_OPTIONS);
  const [rank, worldSize, timeout] = [given.rank ?? -1, given.worldSize ?? -1, given.timeout];
  const signal = signalOf(given);
  const handler = handlerOf(url);
  if (handler !== undefined) return meet(handler, url, { rank, worldSize, timeout });
  const limit = (timeout ?? null) === null ? {} : { timeout: duration(timeout) };
  const keywords = { rank, world_size: worldSize, ...limit };
  return invokeNative(RENDEZVOUS, null, [url], keywords, signal).then((met) => {
    return { ...met, store: wrap(met.store) };
  });
}

/** The call that makes the default group now, if one does. */
let beginning = null;

/** Makes the default group, and returns it. */
export function initProcessGroup(spec, given) {
  const { options } = split(spec, given);
  // A call that was given up may take a moment until it is over.
  if (beginning?.signal?.aborted) return beginning.over.then(() => initProcessGroup(spec, given));
  if (beginning !== null) {
    return Promise.reject(asError({ kind: "AlreadyInitialized" }));
  }
  const call = new Beginning(signalOf(options));
  beginning = call;
  try {
    const begun = begin(spec, given, options ?? {}, (answer) => call.watch(answer));
    begun.catch(() => {}).then(() => call.watch(null));
    return begun.then(() => invoke(DEFAULT_GROUP, null, []));
  } catch (error) {
    call.end();
    throw error;
  }
}

/** A call of `initProcessGroup` that is running. */
class Beginning {
  #isWatched = false;
  #resolve;

  constructor(signal) {
    this.signal = signal;
    this.over = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** It is over when the native half's answer, if it was asked, is there. */
  watch(answer) {
    if (this.#isWatched) return;
    this.#isWatched = true;
    if (answer === null) this.end();
    else answer.then(() => this.end(), () => this.end());
  }

  end() {
    beginning = null;
    this.#resolve();
  }
}

function begin(spec, given, { initMethod, ...others }, watch) {
  const handler = handlerOf(initMethod);
  if (handler === undefined) return invokeAsync(spec, null, given, watch);
  check(spec, given);
  return meet(handler, initMethod, others).then((met) => {
    return invokeAsync(spec, null, [{ ...others, ...met }], watch);
  });
}

/** Joins a group that stands alone. */
export function joinGroup(spec, given) {
  const call = split(spec, given);
  const url = argument(call, 1, "initMethod");
  const handler = handlerOf(url);
  if (handler === undefined) return invokeAsync(spec, null, given);
  check(spec, given);
  const { initMethod, ...others } = call.options ?? {};
  return meet(handler, url, others).then((met) => {
    return invokeAsync(spec, null, [call.positional[0], { ...others, ...met }]);
  });
}

/** Refuses wrong arguments of a call before ranks meet for it, as they may wait for long. */
function check(spec, given) {
  const { args, keywords } = plainArguments(spec, split(spec, given));
  resolved(spec, null, args, keywords);
}

function handlerOf(url) {
  if (typeof url !== "string") return undefined;
  return handlers.get(/^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]);
}

async function meet(handler, url, { rank = -1, worldSize = -1, timeout }) {
  const met = await handler(url, { rank, worldSize, timeout: timeout ?? DEFAULT_TIMEOUT_MS });
  if (isStore(met?.store) && met.rank >= 0 && met.worldSize > met.rank) {
    return { store: met.store, rank: met.rank, worldSize: met.worldSize };
  }
  throw new RendezvousError("the rendezvous handler gives no { store, rank, worldSize }", {});
}

/** One send or receive, for `batchIsendIrecv`. */
export class P2POp {
  constructor(op, tensor, peer, options) {
    expectAtMost(4, "P2POp", arguments.length);
    if (typeof op !== "function" || !["isend", "irecv"].includes(op.name)) {
      throw new InvalidArgumentError("Invalid ``op``. Expected ``op`` to be isend or irecv", {});
    }
    if (!isTensor(tensor)) {
      const text = `must be a typed array or a tensor, not ${told(tensor)}`;
      throw new InvalidTypeError(`P2POp(): 'tensor' ${text}`);
    }
    const given = optionsOf("P2POp", options, P2P_OPTIONS);
    const group = given.group ?? invoke(DEFAULT_GROUP, null, []);
    if (handleOf(group)?.type !== "ProcessGroup" && group !== NON_GROUP_MEMBER) {
      throw new InvalidTypeError(`P2POp(): 'group' must be a ProcessGroup, not ${typeName(group)}`);
    }
    this.op = op;
    this.tensor = tensor;
    this.group = group;
    this.tag = wholeNumber(given.tag ?? 0, "tag");
    Object.assign(this, bothRanks(group, peer ?? null, given.groupPeer ?? null));
    Object.freeze(this);
  }
}

/** What a message can be told; each is looked at where it is used. */
const P2P_OPTIONS = { group: ANYTHING, tag: NUMBER, groupPeer: NUMBER };

function isTensor(value) {
  return ArrayBuffer.isView(value) || value instanceof Tensor || value instanceof CudaTensor;
}

/** The other rank of a message, global and in the group; it is given as one of the two. Where this
 * process is not in the group nothing is known of the other. */
function bothRanks(group, peer, groupPeer) {
  if (peer !== null && groupPeer !== null) {
    throw new InvalidArgumentError("P2POp(): give one of 'peer' and 'groupPeer', not both", {});
  }
  if (peer === null && groupPeer === null) {
    throw new InvalidArgumentError("P2POp(): one of 'peer' and 'groupPeer' must be given", {});
  }
  if (group === NON_GROUP_MEMBER) {
    return { peer: peer ?? undefined, groupPeer: groupPeer ?? undefined };
  }
  wholeNumber(peer ?? groupPeer, peer === null ? "groupPeer" : "peer");
  if (peer !== null) return { peer, groupPeer: invoke(GROUP_RANK, null, [group, peer]) };
  return { peer: invoke(GLOBAL_RANK, null, [group, groupPeer]), groupPeer };
}

function wholeNumber(value, name) {
  if (Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value;
  const Wrong = typeof value === "number" ? InvalidArgumentError : InvalidTypeError;
  const expected = `an integer from 0 to ${2 ** 32 - 1}`;
  throw new Wrong(`P2POp(): '${name}' must be ${expected}, not ${told(value)}`, {});
}

const GROUP_RANK = { key: "DISTRIBUTED_GET_GROUP_RANK", name: "getGroupRank", required: 2 };
const GLOBAL_RANK = { key: "DISTRIBUTED_GET_GLOBAL_RANK", name: "getGlobalRank", required: 2 };

/** Issues sends and receives together, in their order; returns a handle for each of them. */
export function batchIsendIrecv(operations) {
  expectAtMost(1, "batchIsendIrecv", arguments.length);
  if (!Array.isArray(operations) || !operations.every((one) => one instanceof P2POp)) {
    throw new InvalidTypeError("batchIsendIrecv(): expected a list of P2POp");
  }
  expectOneGroup(operations);
  const messages = operations.map(({ op, tensor, group, tag, ...ranks }) => {
    const other = ranks.groupPeer === undefined
      ? { isend: { dst: ranks.peer }, irecv: { src: ranks.peer } }
      : { isend: { groupDst: ranks.groupPeer }, irecv: { groupSrc: ranks.groupPeer } };
    return { op, spec: MESSAGES[op.name], values: [tensor, { ...other[op.name], group, tag }] };
  });
  if (goTogether(operations)) return operateTogether(messages);
  return messages.map(({ op, values }) => op(...values));
}

/** Refuses messages of several groups in one batch. */
function expectOneGroup(operations) {
  const [{ group: first } = {}] = operations;
  const at = operations.findIndex(({ group }) => group !== first);
  if (at < 0) return;
  const name = (group) => (group === NON_GROUP_MEMBER ? String(group) : `'${group.groupName}'`);
  const other = name(operations[at].group);
  const found = `the first is of ${name(first)}, that at position ${at} of ${other}`;
  const advice = "Issue those of each group by a call of their own";
  throw new InvalidArgumentError(`All ops need to use the same group: ${found}. ${advice}`, {});
}

const MESSAGES = {
  isend: { key: "DISTRIBUTED_ISEND", name: "isend", required: 1, output: null },
  irecv: { key: "DISTRIBUTED_IRECV", name: "irecv", required: 1, output: 0, outputName: "tensor" },
};
for (const spec of Object.values(MESSAGES)) Object.assign(spec, { group: 2, groupName: "group" });

/** Whether messages wait for one another unless they are one operation, as on devices. */
function goTogether(operations) {
  const [{ group } = {}] = operations;
  if (operations.length < 2 || group === NON_GROUP_MEMBER) return false;
  return operations.every((one) => one.tensor instanceof CudaTensor);
}

/** Makes a window, and registers the tensor in it that the call was given. What cannot be
 * registered goes along, so that the other ranks learn of it. */
export function newWindow(spec, group, given) {
  const { positional, options } = split(spec, given);
  expectAtMost(1, spec.name, positional.length);
  const { tensor = positional[0] ?? null, ...others } = options ?? {};
  const isGiven = tensor !== null && isArray(tensor);
  const told = isGiven ? new Marked({ kind: "array", info: infoInOwnMemory(tensor) }) : tensor;
  return invokeAsync(spec, group, [told, others]);
}

/** A tensor over the memory of another rank. */
export function mapRemoteTensor(spec, window, given) {
  return tensorOver(invoke(spec, window, given));
}

/** Sums sparse tensors in the group of a call of the free function; undefined on a rank that is not
 * in it. */
export function allReduceSparse(spec, given) {
  return allreduceSparse(spec, null, given);
}

/** Sums sparse tensors: their elements go into memory of polyrank, as those of the sum are. */
export async function allreduceSparse(spec, group, given) {
  const { positional, options } = split(spec, given);
  const [indices, values, ...others] = positional;
  const copies = [];
  const marked = (array) => {
    const copy = inOwnMemory(array, `${spec.name}()`);
    copies.push(copy);
    return new Marked({ kind: "array", info: copy.info });
  };
  try {
    const call = [marked(indices), marked(values), ...others, options ?? {}];
    return (await invokeAsync(spec, group, call))?.map(tensorOver);
  } finally {
    for (const { free } of copies) free();
  }
}

/** Makes tensors the same on all ranks: their elements go into memory of polyrank, and from there
 * come those that are replaced. */
export async function syncState(spec, group, given) {
  const { positional, options } = split(spec, given);
  const [tensors, ...others] = positional;
  if (!Array.isArray(tensors)) {
    throw new InvalidTypeError(`syncState(): 'tensors' must be an array, not ${told(tensors)}`);
  }
  const copies = [];
  try {
    for (const tensor of tensors) copies.push(inOwnMemory(tensor, "syncState()"));
    const marked = copies.map(({ info }) => new Marked({ kind: "array", info }));
    const call = [marked, ...others, options ?? {}];
    const replaced = await invokeAsync(spec, group, call);
    const gone = replaced.filter((index) => !copies[index].putBack());
    if (gone.length === 0) return replaced;
    const which = `tensor ${gone[0]} was replaced, and its memory is gone`;
    throw new InvalidArgumentError(`syncState(): ${which}: its buffer was transferred meanwhile`);
  } finally {
    for (const { free } of copies) free();
  }
}
