// `polyrank-web/log`: what polyrank says of ranks that wait, for the program's own logger, and
// when. Knows nothing of what that logger is.

import "./index.js";
import { InvalidArgumentError } from "./generated/errors.js";
import { LEVELS, checkedLogger, handTo } from "./runtime/loggers.js";
import { expectAtMost } from "./runtime/options.js";
import { sayTo } from "./watch/say.js";
import { setStallLimit } from "./watch/watch.js";

/** Hands what is logged to `logger`, from now on. */
export function setLogger(...given) {
  const { logger, level } = checkedLogger(given);
  const isWanted = LEVELS.indexOf(level ?? "warn") >= LEVELS.indexOf("warn");
  if (logger === null) return sayTo(isWanted ? null : () => true);
  const inVain = (text) => console.warn(`polyrank: ${text}`);
  return sayTo((text) => {
    return !isWanted || handTo(logger, "warn", `polyrank (stall): ${text}`, () => inVain(text));
  });
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
