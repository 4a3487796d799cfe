// What the shared layer requires of the native half, and of the platform. Each package's own
// `js/index.js` installs both before the first call.

/** A value in the form in which it is passed to the native half. */
export type Arg =
  | null
  | undefined
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | Arg[]
  | MarkedArg;

/** A value that JavaScript has no plain type for. */
export type MarkedArg =
  /** `index` into the call's `tensors`. */
  | { kind: "tensor"; index: number }
  | { kind: "reduceOp"; code: number; factor?: number }
  | { kind: "duration"; ms: number }
  /** A record of options, members in the IDL's spelling: `{ group_name: "x" }`. */
  | { kind: "record"; members: Record<string, Arg> }
  /** A group or a store. */
  | { kind: "handle"; handle: NativeObject; typeName: string; interfaces: string[] }
  /** Any other object: the resolver may refuse it by its type. */
  | { kind: "foreign"; typeName: string; interfaces: string[]; callable: boolean }
  /** An object, or a list of objects, of an object collective. */
  | ({ kind: "object" } & ObjectPayload);

/** An object that travels as CBOR. */
export interface ObjectPayload {
  /** For a list: its length; -1: what was given is not a list. */
  length?: number;
  /** The encoding, of the object or of the whole list. */
  bytes?: Uint8Array;
  /** Why it cannot be encoded, which is sent to the other ranks. */
  failed?: string;
  /** For `scatter_object_list`: the encodings of the objects, one by one. */
  items?: { bytes?: Uint8Array; failed?: string }[];
}

/** What the array of a tensor does not tell. Offset and strides are in elements. */
export interface TensorInfo {
  dtype: number;
  shape: readonly number[];
  strides?: readonly number[];
  offset?: number;
  /** Memory of `Native.alloc` or of a device: used in place, not copied; its entry in `tensors` is
   * empty. */
  memory?: NativeMemory;
}

/** Memory that the native half owns. */
export interface NativeMemory {
  /** All of it, where it is now: to be called again after each await. */
  view(): Uint8Array;
  /** For memory of a device: its address. */
  readonly address?: bigint;
  /** For memory of a device: releases it; operations in flight keep it alive. */
  release?(): void;
}

/** An opaque handle: a group or a store. */
export interface NativeObject {
  /** The IDL's name of its class: "ProcessGroup", "HashStore", … */
  readonly type: string;
  /** Equal for handles on the same thing, if handles of this type can be on the same thing. */
  readonly id?: number;
  /** A short description for debugging (`util.inspect`); Node only. */
  describe?(): string;
  /** Releases it; operations in flight keep it alive, and later calls of it throw. */
  release?(): void;
  /** Releases it and all that is kept for this object; browsers only. */
  free?(): void;
}

/** An error of the core. The native half throws an `Error` whose `data` is one. */
export interface NativeErrorData {
  kind: string;
  message: string;
  /** In the IDL's spelling: `{ waited_ms: 5 }`. */
  fields: Record<string, unknown>;
}

/** What an operation is: its name, this process's rank, the root or the peer of a message (-1:
 * none), the number of the operator, and its factor. */
export type OperationFacts = [string, number, number, number?, number?];

/** An operation: prepared, issued, complete. */
export interface NativeWork {
  /** Unique in this realm. */
  readonly id: number;
  /** The collective, and what the user calls it, for messages. */
  readonly name: string;
  /** Identity of the group: operations of one group are issued in the order of the calls. */
  readonly group: number;
  /** The sequence number in the group; -1 before it is issued. */
  readonly sequence: number;
  readonly timeoutMs: number;
  /** Indices of the tensors that are written, in the order of the call. */
  readonly outputs: number[];
  /** Indices of the tensors that are read, in the order of the call. */
  readonly inputs: number[];
  readonly issued: boolean;
  /** What hooks learn of it before it is issued; none if it is, or nothing is to be done. */
  facts(): OperationFacts | null | undefined;
  /** Throws if an input has an element that is not finite. */
  checkFinite(tensors: Uint8Array[], allowInfinity: boolean): void;
  /** The name of the group; none for no group. */
  readonly groupName?: string | null;
  /** What `runPrepared` starts, of an operation that is not issued; none if its calls are not
   * short. */
  prepared(): object | null | undefined;
  /** Does not issue it, though it was called: its group is aborted, for a reason that all ranks
   * are told. */
  refuse(why: string): void;
  /** Bytes that were copied in until now. */
  readonly bytesCopiedIn: number;
  /** Copies at most `budget` bytes in; returns the bytes left. Throws if an array has changed. */
  copyIn(tensors: Uint8Array[], budget: number): number;
  /** Issues it, when nothing is left to copy in. Throws as the core does. */
  issue(): void;
  /** Cancels an operation that was called but not issued: its group is aborted on all ranks. */
  giveUp(why: string): void;
  /** Whether it ended. Makes progress once, does not block. */
  isDone(): boolean;
  /** Reports its id to `onCompleted` once it ended, soon if it has. Keeps the process alive. */
  watch(): void;
  /** The error, once it ended; null if it succeeded. */
  error(): NativeErrorData | null;
  /** Copies at most `budget` bytes out; returns the bytes left. Throws if an array has changed. */
  copyOut(tensors: Uint8Array[], budget: number): number;
  /** Once it ended: the rank in the group that sent what was received; none if nothing was. */
  sourceRank(): number | null | undefined;
  /** Once it ended: what compression lost; none if nothing was compressed. */
  compressionError?(): { maxAbs: number; rootMeanSquare: number } | null | undefined;
  /** It has ended, and nothing is to be copied any more. What stands for it from now on: `name`,
   * `group`, `sequence`, `timeoutMs`, `outputs`, `sourceRank` and `compressionError` can be
   * asked. */
  end(): NativeWork;
}

/** A call of a group that waits: resolved, not begun. */
export interface NativeCall {
  /** The groups whose call order it follows; no later call of the first begins before it has
   * ended, unless it is concurrent. */
  readonly groups: number[];
  /** Whether it runs beside the others of its groups, but for those that leave them: it makes a
   * group. */
  readonly isConcurrent: boolean;
  /** The rank in the group with which it exchanges a message; none: with any, or no message. */
  peer(): number | null | undefined;
  /** This process's rank in the first of those groups. */
  rank(): number | null | undefined;
  /** Aborts those groups, as this rank does not run the call, for this reason. */
  refuse(why: string): void;
  /** Aborts those groups, which the call leaves, when earlier calls take too long. */
  abortGroups(): void;
  /** Begins, once. `cancel` ends the wait. */
  begin(cancel: number | undefined): Promise<unknown>;
}

/** The native half. Methods have the names of the core's tables: "STORE_GET", "TCP_STORE_NEW". */
export interface Native {
  readonly platform: "node" | "web";
  version(): string;
  /** Gives what is called from now on a name, until it is called with none. */
  nameCalls(name: string | null): void;
  /** How long operations may still run when their group is left. */
  shutdownLimitMs(): number;
  /** Zeroed memory. */
  alloc(bytes: number): NativeMemory;
  /** As `prepare`, for messages of devices that are issued together: a method's key, arguments by
   * position and by name, tensors and infos of each. This and the `cuda*` members exist in Node
   * only. */
  prepareTogether?(
    calls: [string, Arg[], Record<string, Arg> | null, Uint8Array[], (number | TensorInfo)[]][],
    maxEagerBytes: number,
  ): NativeWork;
  /** A copy of `bytes` in memory of a CUDA device. */
  cudaUpload?(bytes: Uint8Array, index: number): Promise<NativeMemory>;
  /** Memory of a CUDA device, zeroed or uninitialised. */
  cudaAllocate?(bytes: number, index: number, zeroed: boolean): Promise<NativeMemory>;
  /** Memory of another library on a CUDA device, which `owner` keeps alive. */
  cudaMemoryAt?(
    address: bigint,
    bytes: number,
    index: number,
    stream: bigint,
    owner: unknown,
  ): NativeMemory;
  /** A copy of the bytes of such memory, taken after the work already issued on its stream. */
  cudaDownload?(memory: NativeMemory, from: number, to: number): Promise<Uint8Array>;
  /**
   * Resolves and checks a collective or a message. If at most `maxEagerBytes` bytes (-1: none) are
   * to be copied in, copies them, issues the operation, and polls for a few microseconds whether it
   * ends. `infos[i]` is the number of the dtype where `tensors[i]` is a flat array of it.
   */
  prepare(
    group: NativeObject | null,
    method: string,
    args: Arg[],
    keywords: Record<string, Arg> | null,
    tensors: Uint8Array[],
    infos: (TensorInfo | number)[],
    maxEagerBytes: number,
  ): NativeWork;
  /** The number of a method in calls that have so many arrays first, and then an operator and a
   * rank of these names, or at these positions, in digits, where they are given; -1: those are not
   * short. */
  shortMethod(
    method: string,
    arrays: number,
    reduceOp: string | null,
    rank: string | null,
  ): number;
  /** Whether a method of `shortMethod` receives a message. */
  shortIsReceive(method: number): boolean;
  /** The limit of the operations of a group, ms; NaN if there is no such group. `group` is the
   * identity of a group; 0 means the default group. */
  shortTimeoutMs(group: number): number;
  /** The name of a group, given as for `shortTimeoutMs`. */
  shortGroupName(group: number): string | null | undefined;
  /**
   * A collective or a message on one array or two: the sequence number if it is done when the call
   * returns, `-1 - number` if no array of this rank is one of its outputs; the other rank of a
   * message that is done is the one that was given, in the group. Its work if it
   * continues, null if it was declined and nothing happened. `reduceOp` is the number of the
   * operator; -1: none is given, as for `rank`. A group with a different timeout than `timeoutMs`
   * is declined, too, and so is a call that would have to copy more than `maxCopied` bytes now.
   */
  runShort(
    group: number,
    method: number,
    first: ArrayBufferView,
    second: ArrayBufferView | null,
    reduceOp: number,
    rank: number,
    timeoutMs: number,
    maxCopied: number,
  ): number | NativeWork | null;
  /** A start of what `NativeWork.prepared` gave, on its arrays: as `runShort`. */
  runPrepared(
    prepared: object,
    first: ArrayBufferView,
    second: ArrayBufferView | null,
    maxCopied: number,
  ): number | NativeWork | null;
  /** A call that does not wait, an attribute (key: class and attribute), or a constructor. */
  invoke(
    self: NativeObject | null,
    method: string,
    args: Arg[],
    keywords: Record<string, Arg> | null,
  ): unknown;
  /** A call that waits. Wrong arguments throw immediately; `cancel` ends the wait. */
  invokeAsync(
    self: NativeObject | null,
    method: string,
    args: Arg[],
    keywords: Record<string, Arg> | null,
    cancel: number | undefined,
  ): Promise<unknown>;
  /** As `invokeAsync`, without beginning. */
  resolve(
    self: NativeObject | null,
    method: string,
    args: Arg[],
    keywords: Record<string, Arg> | null,
  ): NativeCall;
  /** A number for `cancel`; nothing is kept for it before a call that has it runs. */
  cancellation(): number;
  cancel(cancellation: number): void;
  /** Has `onCompleted` tell once that a group failed, unless by this rank's own will: by its number
   * with a minus, before what was in flight. */
  watchFailure(group: NativeObject): void;
  /** A number of the members that a group has now. Throws if they are others than the `known` ones,
   * for which `operation` was prepared, if such are given. */
  checkMembers(group: NativeObject, known: number | undefined, operation: string): number;
  /** The numbers of groups that have failed, of which `onCompleted` has not told; it will not. */
  takeFailures(): number[];
  /** Registers a backend, whose tasks this realm takes. `devices` are separated by commas. */
  registerBackend(name: string, devices: string): void;
  /** Makes an operator of the function that tasks name by this number; the operator's number. */
  makeReduction(fn: number): number;
  /** Gives up an operator: it ends with the operations that have it. */
  dropReduction(operator: number): void;
  /** What serves a device in a group: the backend's name, and the number of its kind. */
  deviceBackend(group: NativeObject, device: string): [string, number];
  /** Takes the next that a backend of this realm is asked for, when `onCompleted` has told of such
   * by the number `Infinity`. */
  takeBackendTask(): BackendTask | null | undefined;
  /** Ends a task: with the bytes of its outputs, and the rank that sent what was received, -1 if
   * that is not known; or with the kind and the text of an error. */
  endBackendTask(
    id: number,
    source: number,
    outputs: Uint8Array[],
    kind: string,
    text: string | undefined,
  ): void;
  /** The store that an object is, which is not kept, under a name for messages. `base` is the store
   * that it is besides. Its number is that of the object. */
  makeStore(name: string, base: NativeObject | null): NativeObject;
  /** The same for calls, with the methods that the object has, in the IDL's spelling, between
   * commas. The object is to be kept until a task, `forget`, says otherwise: once for each. */
  holdStore(made: NativeObject, methods: string): NativeObject;
  /** Takes the next that a store of this realm is asked, as `takeBackendTask` does. */
  takeStoreTask(): StoreTask | null | undefined;
  /** Ends a task: with a number in digits and values, or with the kind and the text of an error. */
  endStoreTask(
    id: number,
    number: string,
    values: Uint8Array[],
    kind: string,
    text: string | undefined,
  ): void;
  /** Calls `callback`, between turns of the event loop, with watched operations that ended. */
  onCompleted(callback: (ids: number[]) => void): void;
}

/** What has a value while a callback runs, and through what that awaits where it can. */
export interface Variable<T> {
  run<R>(value: T, callback: () => R): R;
  get(): T | undefined;
}

/** What a backend that is written in JavaScript is asked for. */
export type BackendTask = [
  /** -1: none. Its number, which of all that factories made is asked, the element type, the
   * operator, the root, the other rank, the tag, the limit in ms; for a factory the rank, the
   * number of ranks and the limit. */
  numbers: number[],
  backend: string,
  /** `make`, `abort`, `shutdown`, `forget`, or an operation, in the IDL's spelling; `combine` of a
   * reduction function. */
  method: string,
  inputs: Uint8Array[],
  outputs: Uint8Array[],
  /** For a factory. */
  store: NativeObject | null | undefined,
  groupName: string,
  globalRanks: number[],
];

/** What a store that is written in JavaScript is asked. */
export type StoreTask = [
  id: number,
  store: number,
  /** `forget`, or a method, in the IDL's spelling. */
  method: string,
  keys: string[],
  values: Uint8Array[],
  /** What is added, or how many come to a barrier. */
  number: number | bigint,
  /** Whether to wait for a value of a queue. */
  block: boolean,
  /** The limit that the caller gave, ms; -1: none. */
  timeout: number,
];

/** The platform: Node, or a browser. */
export interface Platform {
  /** Largest allocation, in bytes. */
  readonly maxMemoryBytes: number;
  /** Largest typed array, in bytes. */
  readonly maxArrayBytes: number;
  /** Calls `callback` in the next turn of the event loop, after events that are already queued. */
  nextTurn(callback: () => void): void;
  /** Warns the programmer of a probable mistake. */
  warn(text: string): void;
  /** The group of the innermost `withProcessGroup`. */
  currentGroup: Variable<object>;
  /** The mesh of the innermost `withDeviceMesh`. */
  currentMesh: Variable<object>;
  /** The name of the innermost `recordComm`. */
  commName: Variable<string>;
  /** Stops this rank in the platform's debugger; `site` is where the program calls that. */
  hold(rank: number, site: string): void;
  /** Called with an operation that somebody begins to wait for: may look whether it is over. */
  awaited?(operation: object): void;
}

export let native: Native;
export let platform: Platform;
export function install(nativeHalf: Native, platformBelow: Platform): void;
export function whenInstalled(callback: () => void): void;
