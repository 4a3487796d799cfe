// Declarations of `breakpoint`, by hand; `index.d.ts` exports them.

import type { GroupLike } from "./types.js";

/** Which rank {@link breakpoint} stops, and how long the others wait. */
export interface BreakpointOptions {
  /** The rank that stops, a global rank; 0 by default. */
  rank?: number | null | undefined;
  /** The first so many calls of this line do nothing; 0 by default. */
  skip?: number | null | undefined;
  /** How long the others wait, ms; an hour by default; 0: without limit; null: as long as the
   * group's operations may take. Groups of this process that have a shorter limit have this one
   * from then on, as one steps through their operations slowly. */
  timeout?: number | bigint | null | undefined;
  /** The group whose ranks wait for one another; none: the default group. */
  group?: GroupLike | null | undefined;
}

/**
 * Stops one rank in the debugger; the other ranks of the group wait until it goes on. All ranks of
 * the group call it. The debugger stops within polyrank: the line of the caller is two frames out.
 *
 * In Node the debugger is what is connected to the inspector. Where that is not open, it is opened,
 * its address is written to standard error, and a debugger is waited for; where it is open and
 * nobody is connected, the rank does not stop. In a browser it is the developer tools, if they are
 * open.
 *
 * @throws {@link RankNotInGroupError}
 * @throws {@link NotInitializedError}
 * @throws {@link RankFailedError}
 * @throws {@link CollectiveTimeoutError}
 */
export function breakpoint(options?: BreakpointOptions | null): Promise<void>;
