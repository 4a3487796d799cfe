// Declarations of how calls wait, by hand; `types.d.ts` exports them.

/** Options of every asynchronous call. */
export interface WaitOptions {
  /**
   * Ends the wait: the promise rejects with the signal's reason. A collective continues among the
   * ranks, but its result is not written back; a request of a store is cancelled.
   */
  signal?: AbortSignalLike | null | undefined;
}

/** Options of a wait for an operation. */
export interface WaitLimit extends WaitOptions {
  /** Limit of this wait, ms; none, or zero, means no limit of its own. */
  timeout?: number | null | undefined;
}

/** An `AbortSignal`, of whichever runtime. */
export interface AbortSignalLike {
  /** Whether it fired. */
  readonly aborted: boolean;
  /** Why it fired. */
  readonly reason: any;
  /** Adds a function to call when it fires. */
  addEventListener(type: "abort", listener: () => void, options?: any): void;
  /** Removes such a function. */
  removeEventListener(type: "abort", listener: () => void): void;
}
