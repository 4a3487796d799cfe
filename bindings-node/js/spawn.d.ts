// Declarations of `polyrank/spawn`, by hand.

import type { ProcessGroup, ProcessGroupOptions } from "../index.js";

/** What starts ranks: processes of their own, or Workers of this process. */
export type SpawnKind = "process" | "worker";

/** What {@link spawn} starts. */
export interface SpawnOptions {
  /** The function's name among the exports of the module; `default` by default. */
  name?: string | undefined;
  /** What it is called with after its rank: what `structuredClone` copies and, for processes, what
   * `serialize` of `node:v8` does. */
  args?: readonly unknown[] | undefined;
  /** How many ranks; 1 by default. */
  nprocs?: number | undefined;
  /** Processes, by default, or Workers. */
  kind?: SpawnKind | undefined;
  /** Whether to wait for all of them; true by default. */
  join?: boolean | undefined;
  /** Whether this program may end before them, which ends them; `join()` waits for them all the
   * same. False by default. */
  daemon?: boolean | undefined;
}

/** A rank has failed. */
export class ProcessError extends Error {
  /** Which one: the first argument of its function. */
  readonly rank: number;
  /** Its process id; of a Worker, its thread id. */
  readonly pid: number;
}

/** Its function threw, or its promise rejected: the message has the stack. */
export class ProcessRaisedError extends ProcessError {}

/** A rank has ended otherwise: by a signal, or with an exit code. */
export class ProcessExitedError extends ProcessError {
  /** Its exit code; null after a signal. */
  readonly exitCode: number | null;
  /** The name of the signal that ended it, or null. */
  readonly signal: string | null;
}

/** The ranks that {@link spawn} started. */
export class ProcessContext {
  private constructor();
  /** Each a `ChildProcess` or a `Worker`, in the order of their ranks. */
  readonly processes: unknown[];
  /** Their process ids; of Workers, their thread ids. */
  pids(): number[];
  /**
   * Waits until all have ended, or for `timeout` ms; whether all have. When one has failed the
   * others get SIGTERM, and `gracePeriod` ms (30,000) later SIGKILL; then this rejects. Workers are
   * terminated at once.
   *
   * @throws {@link ProcessRaisedError}
   * @throws {@link ProcessExitedError}
   */
  join(options?: { timeout?: number | null; gracePeriod?: number }): Promise<boolean>;
  /** Ends all that still run: SIGTERM, and `gracePeriod` ms (30,000) later SIGKILL. */
  stop(options?: { gracePeriod?: number }): Promise<void>;
}

/**
 * Starts ranks, each of which calls `fn(rank, ...args)`, where `fn` is what a module exports. In
 * processes `initProcessGroup()` needs no settings; in Workers, whose process has one default group
 * for all of them, {@link joinWorld} takes its place.
 *
 * If one fails the others are ended, and this rejects with its error; with `join: false`,
 * {@link ProcessContext.join} does that. Ranks have the arguments of this program and an empty
 * standard input. If this process dies they end: a process does when its event loop turns.
 *
 * @param entry - the module: its URL, as `new URL("./main.js", import.meta.url)`, or its path,
 * relative to the current folder.
 * @throws {@link ProcessRaisedError}
 * @throws {@link ProcessExitedError}
 * @throws `InvalidArgumentError` if there is no such module, or `args` cannot be copied
 */
export function spawn(
  entry: string | { readonly href: string },
  options: SpawnOptions & { join: false },
): Promise<ProcessContext>;
/** As above, until all have ended. */
export function spawn(
  entry: string | { readonly href: string },
  options?: SpawnOptions & { join?: true | undefined },
): Promise<void>;

/**
 * The group of all ranks that {@link spawn} started, for either kind. In a process it is the
 * default group, as `initProcessGroup` makes it. In a Worker it is a group that
 * `ProcessGroup.join` made: the default group belongs to the process. `destroyProcessGroup(group)`
 * leaves either.
 */
export function joinWorld(options?: ProcessGroupOptions): Promise<ProcessGroup>;
