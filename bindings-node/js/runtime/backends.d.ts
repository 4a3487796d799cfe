// Declarations of backends that are written in JavaScript, by hand; `index.d.ts` exports them.

import type {
  BackendOptions,
  BackendType,
  DistBackendError,
  DuplicateBackendError,
  ElementArray,
  InvalidArgumentError,
  InvalidTypeError,
  NcclOptions,
  ReduceOp,
  Store,
  UnsupportedError,
  Work,
} from "../../index.js";

/**
 * What runs a group's operations on one kind of device, from {@link ProcessGroup.getBackend}.
 */
export class DeviceBackend {
  private constructor();
  /** The options with which it was made. */
  readonly options: Required<BackendOptions>;
  /** Its kind: `CUSTOM` for one that the program registered, and for those that c10d has not. */
  readonly backendType: BackendType;
  /** The backend's name, lower case, as it was asked for: `tcp`, `gloo`. */
  name(): string;
  /** Another name of {@link DeviceBackend.name}. */
  getBackendName(): string;
  /** Another name of {@link DeviceBackend.name}. */
  backendName(): string;
  /** This process's rank. */
  rank(): number;
  /** The number of ranks. */
  size(): number;
  /** A short description for debugging. */
  toString(): string;
  /** `DeviceBackend`. */
  readonly [Symbol.toStringTag]: string;
}

/** What a method of a {@link CustomBackend} returns: nothing if it is done, or its end. */
export type CustomWork = void | Work<unknown> | PromiseLike<unknown>;

/** What an operation of a {@link CustomBackend} is asked with. */
export interface CustomOperation {
  /** Its limit, ms; none: no limit. */
  readonly timeout: number | null;
  /** The element type of its tensors. */
  readonly dtype: string;
  /** How elements are reduced, if they are. Never `AVG` or `PREMUL_SUM`: those are sums here. */
  readonly reduceOp?: ReduceOp;
  /** The root, if there is one. */
  readonly rootRank?: number;
}

/**
 * A backend that is written in JavaScript, on one rank of one group: as many of these methods as it
 * has. A call of one that it lacks fails with {@link UnsupportedError}; what it throws is what the
 * operation fails with, as the `cause` of a {@link DistBackendError}.
 *
 * Methods are called one after another, between turns of the event loop. Tensors are flat typed
 * arrays of its own, with copies of what is read; what it has written when it is done is copied
 * back. Elements of types that JavaScript has no array of are in the array of {@link Tensor.data}.
 */
export interface CustomBackend {
  /** Reduces a tensor of each rank, in place. */
  allreduce?(tensors: ElementArray[], opts: CustomOperation): CustomWork;
  /** As `allreduce`; the root gets the result. */
  reduce?(tensors: ElementArray[], opts: CustomOperation): CustomWork;
  /** Reduces a tensor over this rank and those before it, in place. */
  scan?(tensors: ElementArray[], opts: CustomOperation): CustomWork;
  /** As `scan`, without this rank; the tensor of rank 0 stays as it was. */
  exscan?(tensors: ElementArray[], opts: CustomOperation): CustomWork;
  /** All get the root's tensor. */
  broadcast?(tensors: ElementArray[], opts: CustomOperation): CustomWork;
  /** All get every rank's tensor: one list of outputs, one input. */
  allgather?(
    outputTensors: ElementArray[][],
    inputTensors: ElementArray[],
    opts: CustomOperation,
  ): CustomWork;
  /** The root gets every rank's tensor; elsewhere there is no list of outputs. */
  gather?(
    outputTensors: ElementArray[][],
    inputTensors: ElementArray[],
    opts: CustomOperation,
  ): CustomWork;
  /** Each gets its tensor of the root's list; elsewhere there is no list of inputs. */
  scatter?(
    outputTensors: ElementArray[],
    inputTensors: ElementArray[][],
    opts: CustomOperation,
  ): CustomWork;
  /** Reduces a list of tensors, one for each rank; each gets its own. */
  reduceScatter?(
    outputTensors: ElementArray[],
    inputTensors: ElementArray[][],
    opts: CustomOperation,
  ): CustomWork;
  /** Sends input `i` to rank `i`, and receives output `i` from it. */
  alltoall?(
    outputTensors: ElementArray[],
    inputTensors: ElementArray[],
    opts: CustomOperation,
  ): CustomWork;
  /** Waits for all ranks. */
  barrier?(opts: CustomOperation): CustomWork;
  /** Sends a tensor. */
  send?(tensors: ElementArray[], dst: number, tag: number): CustomWork;
  /** Receives a tensor. */
  recv?(tensors: ElementArray[], src: number, tag: number): CustomWork;
  /** Receives a tensor from any rank: which one it was. */
  recvAnysource?(
    tensors: ElementArray[],
    tag: number,
  ): number | Work<unknown> | PromiseLike<number>;
  /** The group was aborted, or broke: what is under way should end. */
  abort?(): CustomWork;
  /** The group is left. */
  shutdown?(): CustomWork;
}

/** What a factory is told that is registered with `extendedApi`. */
export interface DistributedBackendOptions {
  /** The store of the group: no other group has these keys. */
  readonly store: Store;
  /** This process's rank in the group. */
  readonly groupRank: number;
  /** The number of ranks. */
  readonly groupSize: number;
  /** Limit of the group's operations, ms; 0: no limit. */
  readonly timeout: number;
  /** The group's name. */
  readonly groupId: string;
  /** Global ranks of the members, by rank in the group. */
  readonly globalRanksInGroup: number[];
  /** Whether the members of the group can be replaced: never. */
  readonly enableReconfigure: boolean;
}

/**
 * Makes the backend of this rank in a new group.
 *
 * @param store - The store of the group.
 * @param rank - This process's rank in the group.
 * @param worldSize - The number of ranks.
 * @param timeout - Limit of the group's operations, ms.
 */
export type ProcessGroupFactory = (
  store: Store,
  rank: number,
  worldSize: number,
  timeout: number,
) => CustomBackend | PromiseLike<CustomBackend>;

/**
 * As {@link ProcessGroupFactory}, of one that is registered with `extendedApi`.
 *
 * @param context - What there is to know of the group, and of this rank of it.
 * @param options - What the group was given as `pgOptions`, or `opts`: any plain values, a copy.
 */
export type ExtendedProcessGroupFactory = (
  context: DistributedBackendOptions,
  options: BackendOptions | NcclOptions | { readonly [option: string]: unknown } | null,
) => CustomBackend | PromiseLike<CustomBackend>;

/** Options of a {@link registerBackend} whose factory is told more. */
export interface ExtendedBackendOptions {
  /** The factory is called with {@link DistributedBackendOptions}. */
  extendedApi: true;
  /** Kinds of devices. */
  devices?: string | readonly string[] | null | undefined;
}

/**
 * Registers a backend for all later groups of this process, and for good. Its name can be given
 * wherever a backend is named: alone, as `mine`, or for a kind of device, as `cpu:mine,cuda:nccl`,
 * and is `Backend.MINE` from then on. The factory, and what it makes, run on the thread that
 * registers them.
 *
 * @param name - Its name; case does not matter.
 * @param factory - Called on every rank when a group is made.
 * @param options - `devices`: kinds of devices that it may be named for; none: `cpu` and `cuda`.
 * The name alone stands for all of them. Tensors of a CUDA device go by way of memory of the host,
 * where it serves `cpu` and no other backend serves `cuda`.
 * @throws {@link DuplicateBackendError} if there is a backend of this name.
 * @throws {@link InvalidArgumentError}
 * @throws {@link InvalidTypeError}
 */
export function registerBackend(
  name: string,
  factory: ProcessGroupFactory,
  options?: {
    /** @defaultValue `false` */
    extendedApi?: false | undefined;
    /** Kinds of devices. */
    devices?: string | readonly string[] | null | undefined;
  },
): void;
/** As above, with a factory that is told more. */
export function registerBackend(
  name: string,
  factory: ExtendedProcessGroupFactory,
  options: ExtendedBackendOptions,
): void;
