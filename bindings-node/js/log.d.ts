// Declarations of `polyrank/log`, by hand.

/** What has a method for each level, as `console`, pino and winston have. */
export interface Logger {
  /** Something failed. */
  error(message: string): unknown;
  /** Something will fail, or somebody waits: the default level. */
  warn(message: string): unknown;
  /** What was chosen when a group began, and why. */
  info(message: string): unknown;
  /** What transports and stores meet with. */
  debug(message: string): unknown;
  /** What is finer; `debug` gets it where there is no such method. */
  trace?(message: string): unknown;
}

/** How serious a message is, the most serious first. */
export type LogLevel = "off" | "error" | "warn" | "info" | "debug" | "trace";

/**
 * Hands what polyrank logs to a logger, from now on and in all threads of the process; a warning
 * that it has not taken within a second, because its thread waits, goes to standard error.
 *
 * Without a logger, warnings go to standard error, and with `NODE_DEBUG=polyrank` all else up to
 * `debug`.
 *
 * @param logger - null: standard error.
 * @param options - `level`: how much is logged; none: what `POLYRANK_LOG` says, or `warn`.
 * @throws {@link InvalidTypeError} if a method is missing.
 * @throws {@link InvalidArgumentError} for an unknown level.
 */
export function setLogger(
  logger: Logger | null | undefined,
  options?: { level?: LogLevel | null | undefined },
): void;
