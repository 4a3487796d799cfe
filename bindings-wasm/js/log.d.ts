// Declarations of `polyrank-web/log`, by hand.

/** What has a method for each level, as `console`, pino and winston have. */
export interface Logger {
  /** Something failed. */
  error(message: string): unknown;
  /** Something will fail, or somebody waits: the default level. */
  warn(message: string): unknown;
  /** Nothing is logged at this level in a browser yet. */
  info(message: string): unknown;
  /** Nothing is logged at this level in a browser yet. */
  debug(message: string): unknown;
}

/** How serious a message is, the most serious first. */
export type LogLevel = "off" | "error" | "warn" | "info" | "debug" | "trace";

/**
 * Hands what polyrank says of ranks that wait to a logger, from now on, in this page or Worker:
 * each has its own. Without a logger, it goes to `console.warn`.
 *
 * @param logger - null: the console.
 * @param options - `level`: how much is logged; none: `warn`.
 * @throws {@link InvalidTypeError} if a method is missing.
 * @throws {@link InvalidArgumentError} for an unknown level.
 */
export function setLogger(
  logger: Logger | null | undefined,
  options?: { level?: LogLevel | null | undefined },
): void;

/**
 * Sets after how long an operation that somebody waits for is reported, with the ranks that are
 * missing and where they stand, in this page or Worker: what `POLYRANK_STALL_REPORT` is elsewhere.
 * It is said again after twice as long, and when the operation waits no longer. So it is of a group
 * that this rank waits to join; a call that joins already keeps what was set before.
 *
 * @param milliseconds - 10,000 unless set; 0 is never. Less than 50 is 50.
 * @throws {@link InvalidArgumentError} for what is not a number of milliseconds.
 */
export function setStallReport(milliseconds: number): void;
