// `polyrank-web/log`: what polyrank says of ranks that wait, for the program's own logger, and
// when. Knows nothing of what that logger is.

import "./index.js";
import { InvalidArgumentError, InvalidTypeError } from "./generated/errors.js";
import { expectAtMost } from "./runtime/options.js";
import { sayTo } from "./watch/say.js";
import { setStallLimit } from "./watch/watch.js";

const LEVELS = ["off", "error", "warn", "info", "debug", "trace"];

/** Hands what is logged to `logger`, from now on. */
export function setLogger(logger, options) {
  expectAtMost(2, "setLogger", arguments.length);
  const level = options?.level ?? "warn";
  if (!LEVELS.includes(level)) {
    const levels = LEVELS.join(", ");
    throw new InvalidArgumentError(
      `setLogger(): 'level' must be one of ${levels}, not ${String(level)}`,
      {},
    );
  }
  const isWanted = LEVELS.indexOf(level) >= LEVELS.indexOf("warn");
  if (logger === null || logger === undefined) return sayTo(isWanted ? null : () => true);
  for (const name of ["error", "warn", "info", "debug"]) {
    if (typeof logger[name] !== "function") {
      throw new InvalidTypeError(
        "setLogger(): 'logger' must have the methods error, warn, info and debug, " +
          `as console has; it has no ${name}`,
      );
    }
  }
  return sayTo((text) => !isWanted || write(logger, text));
}

/** Reports what waits for longer than so many ms from now on; 0: nothing. */
export function setStallReport(milliseconds) {
  expectAtMost(1, "setStallReport", arguments.length);
  if (typeof milliseconds !== "number" || !(milliseconds >= 0)) {
    throw new InvalidArgumentError(
      `setStallReport(): expected a number of milliseconds, 0 or more, not ${milliseconds}`,
      {},
    );
  }
  setStallLimit(milliseconds);
}

/** Whether the logger has taken a line. */
function write(logger, text) {
  try {
    const result = logger.warn(`polyrank (stall): ${text}`);
    // One that fails later must not end the program.
    result?.then?.(undefined, () => console.warn(`polyrank: ${text}`));
    return true;
  } catch {
    return false;
  }
}
