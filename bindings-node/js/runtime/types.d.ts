// Declarations that exist only in JavaScript, written by hand; `index.d.ts` exports all of them.

import type {
  AbortedError,
  Backend,
  BackendUnavailableError,
  CollectiveMismatchError,
  CollectiveTimeoutError,
  CompressionLoss,
  DType,
  InvalidArgumentError,
  InvalidTypeError,
  NotInitializedError,
  ProcessGroup,
  RankFailedError,
  RendezvousError,
  RendezvousTimeoutError,
  Store,
  UnknownBackendError,
  UnsupportedDTypeError,
  UnsupportedError,
  WaitTimeoutError,
  WorkResult,
  initProcessGroup,
  irecv,
  isend,
  newGroup,
  send,
} from "../../index.js";
import type { WaitLimit, WaitOptions } from "./waits.js";
export * from "./meshes.js";
export * from "./waits.js";

/** A typed array or a DataView. Its class is its element type; a DataView is of `u8`. */
export type ArrayLike =
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array
  | Float16ArrayLike
  | DataView;

/** A `Float16Array`, where the runtime has one. */
export interface Float16ArrayLike extends ArrayBufferView {
  /** Two. */
  readonly BYTES_PER_ELEMENT: number;
  /** The number of elements. */
  readonly length: number;
  /** What tells it from other arrays. */
  readonly [Symbol.toStringTag]: "Float16Array";
  /** The elements. */
  [index: number]: number;
}

/**
 * What operations read and write, in place: a typed array or DataView, a {@link Tensor}, or a
 * {@link CudaTensor}.
 *
 * In Node, what is over when the call returns was most often done in the array itself. Else an
 * array's elements are copied to native memory, at the latest when the operation is issued, and
 * copied back when it completes; do not touch the array in between. If it is detached or resized
 * meanwhile, the operation rejects and the array is not written. If it had not been copied in yet
 * (a large array, or one queued behind others), the group is aborted on all ranks, because they
 * depend on this one. Operations on one array run one after the other, in the order of the calls.
 * Memory of {@link alloc} is used without a copy.
 */
export type TensorLike = ArrayLike | Tensor | CudaTensor;

/** A run of bytes; a string as UTF-8. */
export type BytesLike = string | ArrayBufferView | ArrayBuffer;

/** A process group, or what {@link newGroup} returns on a rank that is not in it. */
export type GroupLike = ProcessGroup | NonGroupMember;

/** The class of array for the elements of a tensor of a dtype. */
export type ArrayOf<D extends DType> = D extends "f32" | "complex64"
  ? Float32Array
  : D extends "f64" | "complex128"
    ? Float64Array
    : D extends "i8"
      ? Int8Array
      : D extends "i16"
        ? Int16Array
        : D extends "i32"
          ? Int32Array
          : D extends "i64"
            ? BigInt64Array
            : D extends "u8" | "bool"
              ? Uint8Array
              : D extends "u16" | "bf16"
                ? Uint16Array
                : D extends "u32"
                  ? Uint32Array
                  : D extends "u64"
                    ? BigUint64Array
                    : Uint16Array | Float16ArrayLike;

/** Options of {@link tensor}. */
export interface TensorOptions {
  /** The element type; that of the array unless given. `complex64` is a pair of `f32`. */
  dtype?: DType | undefined;
  /** The sizes, outermost first; all elements in one dimension unless given. */
  shape?: readonly number[] | undefined;
  /** Stride of each dimension, in elements; row by row unless given. */
  strides?: readonly number[] | undefined;
  /**
   * The first element.
   * @defaultValue `0`
   */
  offset?: number | undefined;
}

/** A view of memory as a tensor. Made by {@link tensor} or {@link alloc}. */
export class Tensor<A extends ArrayLike = ArrayLike> {
  private constructor();
  /** The element type. */
  readonly dtype: DType;
  /** The sizes, outermost first. */
  readonly shape: number[];
  /** Stride of each dimension, in elements. */
  readonly strides: number[];
  /** The first element of `data` that belongs to it. */
  readonly offset: number;
  /** The number of elements. */
  readonly size: number;
  /** Bytes of all elements. */
  readonly byteLength: number;
  /**
   * The memory. For a tensor that polyrank owns, get it again after each await: in a browser all
   * such memory is one buffer, whose views become empty when it grows. An operation that is given
   * an array over such memory uses it in place, as it would the tensor.
   *
   * The tensor, and the array that this returns, keep owned memory alive. In a browser a part of
   * that array (`data.subarray(…)`, `new Uint8Array(data.buffer, …)`) does not: keep the tensor for
   * as long as you use the part, or its memory may be given to another tensor.
   */
  readonly data: A;
  /** `Tensor`. */
  readonly [Symbol.toStringTag]: string;
}

/**
 * A tensor over the memory of `data`, which is not copied: for element types that JavaScript has no
 * array of (`bf16`, `bool`, complex numbers, `f16`), and for parts of an array.
 *
 * @param data - The memory.
 * @param options - How it is read.
 * @throws {@link InvalidArgumentError} if the shape does not fit into `data`.
 */
export function tensor<A extends ArrayLike>(data: A, options?: TensorOptions): Tensor<A>;

/**
 * A tensor of zeros in memory that polyrank owns: operations use it without copying it. Freed when
 * neither the tensor nor the array from `data` is referenced any more; see {@link Tensor.data} for
 * the exception.
 *
 * @param dtype - The element type.
 * @param shape - The sizes, outermost first; a number is one dimension.
 */
export function alloc<D extends DType>(
  dtype: D,
  shape: number | readonly number[],
): Tensor<ArrayOf<D>>;

/** Which CUDA device: its index, or `"cuda:1"`; `"cuda"` is the first one. */
export type CudaDevice = number | "cuda" | `cuda:${number}`;

/** Where a {@link CudaTensor} is made. */
export interface CudaOptions {
  /**
   * The device.
   * @defaultValue `0`
   */
  device?: CudaDevice | undefined;
}

/** A typed array: all but a DataView. */
export type ElementArray = Exclude<ArrayLike, DataView>;

/** Options of {@link CudaTensor.fromPointer}. */
export interface CudaPointer<D extends DType = DType> {
  /** The first element's address on the device (`CUdeviceptr`). */
  pointer: bigint;
  /** The element type. */
  dtype: D;
  /** The sizes, outermost first; a number is one dimension. */
  shape: number | readonly number[];
  /** Stride of each dimension, in elements; row by row unless given. */
  strides?: readonly number[] | undefined;
  /**
   * The device on which the memory lies.
   * @defaultValue `0`
   */
  device?: CudaDevice | undefined;
  /**
   * The stream (`CUstream`) in whose order the memory is used: operations run after the work
   * already issued on it. Unless given, the default stream.
   */
  stream?: bigint | undefined;
  /** What owns the memory: kept alive until polyrank no longer uses it. */
  owner: object;
}

/**
 * A tensor in memory of a CUDA device, for groups with the backend `nccl`. Operations use it in
 * place. Operations run after the work already issued on its stream; awaiting one resumes when the
 * device has finished.
 *
 * The driver is called on another thread, so nothing here blocks the event loop. Without a CUDA
 * driver, whatever makes a tensor fails with {@link BackendUnavailableError}, which says what was
 * looked for; in a browser with {@link UnsupportedError}.
 */
export class CudaTensor<A extends ElementArray = ElementArray> {
  private constructor();
  /**
   * A copy of an array or of a tensor in memory of the host, as it is at the call.
   *
   * @param data - What is copied.
   * @param options - The device; `dtype` as for {@link tensor}; `shape`, that of `data` unless
   * given.
   * @throws {@link BackendUnavailableError}
   * @throws {@link InvalidArgumentError} if there is no such device.
   */
  static from<A extends Exclude<ElementArray, Uint8ClampedArray>>(
    data: A,
    options?: CudaOptions & {
      /** The sizes, outermost first. */
      shape?: readonly number[] | undefined;
      /** The element type is that of `data`. */
      dtype?: undefined;
    },
  ): Promise<CudaTensor<A>>;
  /**
   * As above, with an element type that JavaScript has no array of.
   *
   * @param data - What is copied.
   * @param options - As above.
   */
  static from(
    data: ArrayLike | Tensor,
    options?: CudaOptions & {
      /** The element type; that of `data` unless given. */
      dtype?: DType | undefined;
      /** The sizes, outermost first. */
      shape?: readonly number[] | undefined;
    },
  ): Promise<CudaTensor>;
  /**
   * A tensor of zeros.
   *
   * @throws {@link BackendUnavailableError}
   */
  static zeros<D extends DType>(
    dtype: D,
    shape: number | readonly number[],
    options?: CudaOptions,
  ): Promise<CudaTensor<ArrayOf<D>>>;
  /**
   * A tensor whose elements are whatever was there before.
   *
   * @throws {@link BackendUnavailableError}
   */
  static empty<D extends DType>(
    dtype: D,
    shape: number | readonly number[],
    options?: CudaOptions,
  ): Promise<CudaTensor<ArrayOf<D>>>;
  /**
   * A tensor over memory that another library owns, which is not copied. Nothing can check the
   * address: a wrong one ends the process, or worse.
   *
   * `owner` must not refer to the tensor, or neither is ever freed.
   *
   * @throws {@link BackendUnavailableError}
   */
  static fromPointer<D extends DType>(memory: CudaPointer<D>): CudaTensor<ArrayOf<D>>;
  /** The element type. */
  readonly dtype: DType;
  /** The sizes, outermost first. */
  readonly shape: number[];
  /** Stride of each dimension, in elements. */
  readonly strides: number[];
  /** The number of elements. */
  readonly size: number;
  /** Bytes of all elements. */
  readonly byteLength: number;
  /** The device: `"cuda:1"`. */
  readonly device: string;
  /** The first element's address on the device, for libraries that take one. */
  readonly pointer: bigint;
  /** The stream in whose order the memory is used; `0n` is the default stream. */
  readonly stream: bigint;
  /**
   * A copy of the elements, as they are after the work already issued on the stream. Await
   * operations on the tensor first.
   */
  toArray(): Promise<A>;
  /**
   * As {@link CudaTensor.toArray}, into an array with as many bytes, which it returns.
   *
   * @throws {@link InvalidArgumentError} if the array has more or fewer.
   */
  copyTo<B extends ArrayLike>(array: B): Promise<B>;
  /**
   * Frees the memory when no operation uses it any more, without waiting for the garbage collector.
   * Later uses of the tensor fail.
   */
  free(): void;
  /** `CudaTensor`. */
  readonly [Symbol.toStringTag]: string;
}

/**
 * A handle on an operation that was issued. Await it: `await group.allreduce(x)` returns `x`,
 * reduced. The tensors of the operation must not be touched before it is complete.
 *
 * A failure is thrown by whatever waits for it; one that nobody waits for is not reported as an
 * unhandled rejection.
 */
export class Work<R = unknown> implements PromiseLike<R> {
  private constructor();

  /** As in `Promise`: the result as it was passed to the call, or what the call failed with. */
  then<A = R, B = never>(
    onfulfilled?: ((value: R) => A | PromiseLike<A>) | null,
    onrejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B>;

  /** As in `Promise`. */
  catch<B = never>(onrejected?: ((reason: any) => B | PromiseLike<B>) | null): Promise<R | B>;

  /** As in `Promise`. */
  finally(onfinally?: (() => void) | null): Promise<R>;

  /**
   * Waits until the operation is complete, no longer than `timeout`. When that has passed, the
   * operation continues, and a later wait may succeed.
   *
   * @throws {@link WaitTimeoutError}
   * @throws {@link CollectiveTimeoutError}
   * @throws {@link CollectiveMismatchError}
   * @throws {@link RankFailedError}
   * @throws {@link AbortedError}
   */
  wait(options?: WaitLimit): Promise<R>;

  /** Whether the operation ended, well or not. Does not wait. */
  isCompleted(): boolean;

  /** Whether the operation ended well. Does not wait. */
  isSuccess(): boolean;

  /** What the operation failed with, if it did. Does not wait. */
  exception(): unknown;

  /** The output tensors, in one flat list. Does not wait. */
  result(): TensorLike[];

  /** A promise of the output tensors, in one flat list. */
  getFuture(): Promise<TensorLike[]>;

  /** A promise of how the operation ended. It never rejects. */
  getFutureResult(): Promise<WorkResult>;

  /**
   * The rank, in the group, that sent what was received.
   *
   * @throws {@link InvalidArgumentError} if nothing was received, or not yet.
   */
  sourceRank(): number;

  /** The same as `wait()` without a timeout. */
  synchronize(): Promise<R>;

  /** The limit of the operation, ms. */
  readonly timeout: number;

  /** The number of the operation in its group; -1 before it is issued. */
  readonly sequence: number;

  /** How long the operation took, from its call to its end, or has taken so far, ms. */
  readonly duration: number;

  /** The error that compression made of what this rank compressed: of its tensors, and in an
   * allreduce of its part of the result. Null where there is none, and before the end. */
  readonly compressionError: CompressionLoss | null;

  /** `Work`. */
  readonly [Symbol.toStringTag]: string;
}

/** Represents a group that this process is not a member of. A function that is given it as its
 * group does nothing; a rank in it is -1. */
export class NonGroupMember {
  private constructor();
  /** `NonGroupMember`. */
  readonly [Symbol.toStringTag]: "NonGroupMember";
}

/** What {@link newGroup} returns on a rank that is not in the new group. */
export const NON_GROUP_MEMBER: NonGroupMember;

/** Default limit of a group's operations, ms: 30 min. */
export const DEFAULT_TIMEOUT_MS: number;

/**
 * Validates a backend name and returns it in lower case.
 *
 * @throws {@link UnknownBackendError}
 */
export function parseBackend(name: string): Backend;

/**
 * Runs `callback` with `group` as the current group, and returns its result. In Node the group
 * stays the current one through everything that the callback awaits; in a browser until the
 * callback awaits for the first time.
 */
export function withProcessGroup<R>(group: ProcessGroup, callback: () => R): R;

/**
 * Runs `callback`, and returns its result; `name` is the name of all operations, of every group,
 * that it calls: their errors say it beside the collective, as in
 * `allreduce 'FSDP::all_gather (layer1)'`, and hooks are given it as `commName`. The innermost
 * block counts. It changes nothing else, and ranks may name the same operation differently. In
 * Node the name lasts through everything that the callback awaits; in a browser until the callback
 * awaits for the first time.
 *
 * @throws {@link InvalidTypeError}
 */
export function recordComm<R>(name: string, callback: () => R): R;

/**
 * The group of the innermost {@link withProcessGroup} that this call is in, else the default group.
 *
 * @throws {@link NotInitializedError}
 */
export function currentProcessGroup(): ProcessGroup;

/** Where ranks meet, and as what. */
export interface Rendezvous {
  /** The store that all ranks share. */
  store: Store;
  /** This process's rank. */
  rank: number;
  /** The number of ranks. */
  worldSize: number;
}

/** What is known before a rendezvous. -1 if not known: the URL or the rendezvous supplies it. */
export interface RendezvousRequest {
  /** This process's rank, or -1. */
  rank: number;
  /** The number of ranks, or -1. */
  worldSize: number;
  /** Limit of the rendezvous, ms. */
  timeout: number;
}

/** Handles a custom URL scheme: meets the other ranks there. */
export type RendezvousHandler = (
  url: string,
  request: RendezvousRequest,
) => Rendezvous | PromiseLike<Rendezvous>;

/**
 * Meets the other ranks at a URL, once.
 *
 * @param url - `env://`, `tcp://host:port`, `file:///path`, `ws://host:port`, `wss://…`, or one of
 * a scheme that was registered.
 * @param options - What is not in the URL; `timeout` in ms.
 * @throws {@link RendezvousError}
 * @throws {@link RendezvousTimeoutError}
 */
export function rendezvous(
  url: string,
  options?: WaitOptions & {
    /** This process's rank; -1: from the URL or the environment. */
    rank?: number | undefined;
    /** The number of ranks; -1: from the URL or the environment. */
    worldSize?: number | undefined;
    /** Limit of the rendezvous, ms; none: 30 min. */
    timeout?: number | null | undefined;
  },
): Promise<Rendezvous>;

/**
 * Adds a URL scheme to {@link rendezvous} and {@link initProcessGroup}. A scheme has one handler.
 *
 * @throws {@link RendezvousError} if the scheme has a handler already.
 */
export function registerRendezvousHandler(scheme: string, handler: RendezvousHandler): void;

/**
 * An operation that is started again and again, made by {@link ProcessGroup.prepareAllreduce} and
 * the other methods whose names begin so.
 *
 * Each start is a call like any other: it has the next number in its group, hooks and names see it
 * as the ordinary call, and other ranks may take part in it by that. `reconfigure` and the end of
 * the group end it.
 */
export class PreparedOperation<T = unknown> {
  private constructor();
  /**
   * Starts the operation, before what is called later of its sort: collectives, sends or receives.
   * While an earlier start of it is still running, a message is started behind that, and so is a
   * collective on tensors of a device; one on memory of the host is issued when that is over, and
   * reads what it wrote, as an ordinary call on the same array does. All ranks start it equally
   * often, or take part by ordinary calls. Failures are reported by the returned handle.
   * @throws {@link InvalidArgumentError} if an array was given away.
   * @throws {@link ReconfiguredError} if the group has other members by now.
   */
  start(): Work<T>;
  /**
   * Starts it and waits: the usual call in a loop, without making a handle. One that is not awaited
   * comes behind the earlier ones as well. Rejects with what it failed with.
   */
  run(): Promise<void>;
  /**
   * Waits for the last start, as {@link Work.wait}: its result, or `undefined` if there was none.
   * @throws {@link WaitTimeoutError}
   */
  wait(options?: WaitLimit): Promise<T | undefined>;
  /** `PreparedOperation`. */
  readonly [Symbol.toStringTag]: "PreparedOperation";
}

/** One send or receive for {@link batchIsendIrecv}. */
export class P2POp {
  /**
   * @param op - The function {@link isend} or {@link irecv}.
   * @param tensor - What is sent, or received into.
   * @param peer - The other rank, global; none if `groupPeer` is given.
   * @throws {@link InvalidArgumentError}
   * @throws {@link RankNotInGroupError}
   */
  constructor(
    op: typeof isend | typeof irecv,
    tensor: TensorLike,
    peer?: number | null,
    options?: {
      /** The process group; none: the default group. */
      group?: ProcessGroup | undefined;
      /** Messages match if their tags are equal. */
      tag?: number | undefined;
      /** The other rank as a rank in the group. */
      groupPeer?: number | undefined;
    },
  );
  /** The function. */
  readonly op: typeof isend | typeof irecv;
  /** What is sent, or received into. */
  readonly tensor: TensorLike;
  /** The other rank, global. */
  readonly peer: number;
  /** The process group. */
  readonly group: ProcessGroup;
  /** The tag. */
  readonly tag: number;
  /** The other rank, in the group. */
  readonly groupPeer: number;
}

/**
 * Issues sends and receives together, in their order; returns a handle for each of them. Those of
 * {@link CudaTensor}s in one group are one operation, so that they match in whatever order the
 * ranks list them; each handle is then that of all.
 *
 * @throws {@link InvalidTypeError}
 */
export function batchIsendIrecv(operations: readonly P2POp[]): Work<unknown>[];
