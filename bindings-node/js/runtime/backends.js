// Backends that are written in JavaScript: the native half asks them for things by tasks, which
// come between turns of the event loop. Each task has copies of the bytes that it reads, and ends
// with the bytes that it has written. So do reduction functions. Knows nothing of operations.

import { Backend, DTYPES, ReduceOp } from "../generated/constants.js";
import { InvalidArgumentError, InvalidTypeError, wrapped } from "../generated/errors.js";
import { camelName } from "./arguments.js";
import { described, forgetCauses, noteCause } from "./causes.js";
import { decode } from "./codec.js";
import { handleOf, wrap } from "./handles.js";
import { native } from "./native.js";
import { whenTasksCome } from "./operations.js";
import { BOOLEAN, expectAtMost, expectFunction, optionsOf } from "./options.js";
import { combine } from "./reductions.js";
import { VIEWS } from "./tensors.js";
import { typeName } from "./views.js";
import { INSPECT, INTERNAL, Work } from "./work.js";

/** What is called for a new group, by the names of the backends. */
const factories = new Map();

/** The backends, each on one rank of a group, by their numbers in the core. */
const backends = new Map();

/** How many ranks each one's group has. */
const sizes = new Map();

/** Registers a backend, whose parts `factory` makes. */
export function registerBackend(name, factory, options) {
  expectAtMost(3, "registerBackend", arguments.length);
  expectFunction("registerBackend", "factory", factory);
  if (typeof name !== "string") {
    throw new InvalidTypeError("registerBackend(): 'name' must be a string");
  }
  const { extendedApi, devices } = optionsOf("registerBackend", options, {
    extendedApi: BOOLEAN,
    devices: ["a string or a list of strings", isNames],
  });
  const kinds = typeof devices === "string" ? [devices] : [...(devices ?? [])];
  wrapped(() => native.registerBackend(name, kinds.join(",")));
  const lower = name.toLowerCase();
  factories.set(lower, { factory, extendedApi: extendedApi === true });
  Backend[lower.toUpperCase().replace(/[-.]/g, "_")] = lower;
}

function isNames(value) {
  if (typeof value === "string") return true;
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

/** Runs a task until it is over. What does not wait is called in the order of the tasks. */
async function run(parts) {
  const [numbers, backend, method, inputs, outputs, store, groupId, globalRanks, ...more] = parts;
  const [place, options, isOwn] = more;
  const [id, instance, dtype, reduceOp, root, peer, tag, timeout, ...about] = numbers;
  const task = { instance, dtype: nameOf(dtype), reduceOp, root, peer, tag, timeout };
  Object.assign(task, { method: camelName(method), inputs, outputs });
  if (method === "make") {
    const [groupRank, groupSize, limit] = about;
    const told = { store: wrap(store), groupRank, groupSize, timeout: limit, groupId };
    Object.assign(task, { backend, told: { ...told, globalRanksInGroup: globalRanks } });
    Object.assign(task, { options: options ? decode(options) : null, isOwn });
  }
  try {
    const { written = [], source = -1 } = await perform(task);
    native.endBackendTask(id, source, written.map(bytesOf), "", undefined);
  } catch (error) {
    const [kind, text] = described(error);
    if (method === "combine") {
      // A reduction function is no backend's; `backend` is what messages call the operation.
      noteCause(`${backend} failed: ${text}`, undefined, error);
    } else {
      // The error of a factory is raised once.
      noteCause(`${place}: ${text}`, method === "make" ? null : instance, error);
    }
    native.endBackendTask(id, -1, [], kind, text);
  }
}

async function perform(task) {
  if (task.method === "make") return make(task);
  if (task.method === "combine") {
    return { written: [combine(task.instance, task.dtype, task.inputs)] };
  }
  const backend = backends.get(task.instance);
  const method = backend?.[task.method];
  if (task.method === "forget" || task.method === "release") {
    backends.delete(task.instance);
    sizes.delete(task.instance);
    // Of a group that was only left, somebody may have a work.
    if (task.method === "forget") forgetCauses(task.instance);
  } else if (task.method === "abort" || task.method === "shutdown") {
    if (typeof method === "function") await method.call(backend);
  } else {
    return operate(task, backend, method);
  }
  return {};
}

async function make({ backend: name, instance, told, options, isOwn }) {
  const { factory, extendedApi } = factories.get(name);
  if (isOwn && !extendedApi) {
    throw new InvalidTypeError(
      `the factory of the backend '${name}' takes no options, and the group was given ` +
        `${Object.keys(options)}: register it with extendedApi`,
    );
  }
  const { store, groupRank, groupSize, timeout } = told;
  const backend = await (extendedApi
    ? factory({ ...told, enableReconfigure: false }, options)
    : factory(store, groupRank, groupSize, timeout));
  if (typeof backend !== "object" || backend === null) {
    throw new InvalidTypeError(`the factory returned ${String(backend)}, not a backend`);
  }
  backends.set(instance, backend);
  sizes.set(instance, groupSize);
  return {};
}

async function operate(task, backend, method) {
  if (typeof method !== "function") {
    throw Object.assign(new Error(task.method), { kind: "Unsupported" });
  }
  const arraysOf = (blocks) => blocks.map((bytes) => new VIEWS[task.dtype](bytes.buffer));
  const [inputs, written] = [arraysOf(task.inputs), arraysOf(task.outputs)];
  const returned = method.apply(backend, argumentsOf(task, inputs, written));
  const value = await returned;
  if (!(returned instanceof Work)) {
    const tensors = [...inputs, ...written];
    expectReturned(task, value, tensors, typeof returned?.then === "function");
  }
  if (task.method !== "recvAnysource") return { written };
  const source = typeof value === "number" ? value : returned?.sourceRank?.();
  return { written, source: source ?? -1 };
}

/** Refuses what a method returned, or what it promised, if it looks as results do that nobody
 * would take, or as something that nobody would wait for. */
function expectReturned({ method, instance }, value, tensors, isPromised) {
  const isExpected = (value) => {
    if (value === undefined || value === null) return true;
    if (Array.isArray(value)) return value.every(isExpected);
    if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return tensors.includes(value);
    return isPromised && typeof value === "object" && typeof value.wait !== "function";
  };
  if (method === "recvAnysource" && typeof value === "number") return expectRank(instance, value);
  if (isExpected(value)) return;
  const what = typeof value?.wait === "function" ? "an object with wait()" : named(value);
  throw new InvalidTypeError(
    `${method} of a backend ${isPromised ? "promised" : "returned"} ${what}; expected nothing, a ` +
      "promise or a Work, and the results in the tensors that it is given",
  );
}

/** Refuses a sender that is not a rank of the group. */
function expectRank(instance, rank) {
  const size = sizes.get(instance);
  if (Number.isInteger(rank) && rank >= 0 && rank < size) return;
  throw new InvalidArgumentError(
    `recvAnysource of a backend returned ${rank}; expected the sender's rank in the group, ` +
      `from 0 to ${size - 1}`,
    {},
  );
}

/** What a message calls a value. */
function named(value) {
  return typeof value === "number" || typeof value === "boolean" ? `${value}` : typeName(value);
}

/** What a method is called with: c10d's arguments, for one tensor of each rank. */
function argumentsOf(task, inputs, outputs) {
  const options = { timeout: task.timeout < 0 ? null : task.timeout, dtype: task.dtype };
  if (task.reduceOp >= 0) options.reduceOp = operatorOf(task.reduceOp);
  if (task.root >= 0) options.rootRank = task.root;
  const list = (blocks) => (blocks.length > 0 ? [blocks] : []);
  switch (task.method) {
    case "allgather":
    case "gather":
      return [list(outputs), inputs, options];
    case "scatter":
    case "reduceScatter":
      return [outputs, list(inputs), options];
    case "alltoall":
      return [outputs, inputs, options];
    case "barrier":
      return [options];
    case "send":
      return [inputs, task.peer, task.tag];
    case "recv":
      return [outputs, task.peer, task.tag];
    case "recvAnysource":
      return [outputs, task.tag];
    default:
      return [outputs, options];
  }
}

function nameOf(code) {
  return [...DTYPES.values()].find((dtype) => dtype.code === code).name;
}

function operatorOf(code) {
  return Object.values(ReduceOp).find((known) => known.value === code);
}

function bytesOf(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** What runs a group's operations on one kind of device. */
export class DeviceBackend {
  #group;
  #name;
  #kind;

  constructor(made, group, name, kind) {
    if (made !== INTERNAL) throw new InvalidTypeError("a DeviceBackend is not made by `new`");
    this.#group = group;
    this.#name = name;
    this.#kind = kind;
  }

  get options() {
    const { timeout, groupName } = this.#group;
    return { backend: this.#name, timeout, groupName, globalRanksInGroup: this.#group.ranks() };
  }

  get backendType() {
    return this.#kind;
  }

  name() {
    return this.#name;
  }

  getBackendName() {
    return this.#name;
  }

  backendName() {
    return this.#name;
  }

  rank() {
    return this.#group.rank();
  }

  size() {
    return this.#group.size();
  }

  toString() {
    const { groupName } = this.#group;
    return `DeviceBackend(${this.#name} of ${groupName}, rank ${this.rank()} of ${this.size()})`;
  }

  [INSPECT]() {
    return this.toString();
  }

  get [Symbol.toStringTag]() {
    return "DeviceBackend";
  }
}

/** The backend that serves a device in a group. */
export function getBackend(group, given) {
  expectAtMost(1, "getBackend", given.length);
  const [device] = given;
  const handle = handleOf(group);
  if (handle?.type !== "ProcessGroup") {
    throw new InvalidTypeError("getBackend needs its group: write group.getBackend(…)");
  }
  const [name, kind] = wrapped(() => native.deviceBackend(handle, String(device)));
  return new DeviceBackend(INTERNAL, group, name, kind);
}

whenTasksCome(() => {
  for (let task; (task = native.takeBackendTask() ?? null) !== null; ) run(task);
});
