// `polyrank/log`: what polyrank logs, for the program's own logger. Knows nothing of what that is.

import { InvalidArgumentError, InvalidTypeError } from "./generated/errors.js";
import "./index.js";
import { native } from "./runtime/native.js";
import { expectAtMost } from "./runtime/options.js";

const LEVELS = ["off", "error", "warn", "info", "debug", "trace"];

/** Hands what is logged to `logger`, from now on and in all threads of the process. */
export function setLogger(logger, options) {
  expectAtMost(2, "setLogger", arguments.length);
  const level = options?.level ?? null;
  if (level !== null && !LEVELS.includes(level)) {
    const levels = LEVELS.join(", ");
    throw new InvalidArgumentError(
      `setLogger(): 'level' must be one of ${levels}, not ${String(level)}`,
      {},
    );
  }
  if (logger === null || logger === undefined) {
    native.readLog(null, level);
    return;
  }
  for (const name of ["error", "warn", "info", "debug"]) {
    if (typeof logger[name] !== "function") {
      throw new InvalidTypeError(
        "setLogger(): 'logger' must have the methods error, warn, info and debug, " +
          `as console has; it has no ${name}`,
      );
    }
  }
  native.readLog((line) => write(logger, line), level);
}

/** Whether the logger has taken a line. */
function write(logger, { level, target, message, rank, group, operation }) {
  const facts = [target.replace(/^polyrank(::)?/u, "").replaceAll("::", ".")];
  if (rank !== undefined) facts.push(`rank ${rank}`);
  if (group !== undefined) facts.push(`group ${group}`);
  if (operation !== undefined) facts.push(operation);
  const method = typeof logger[level] === "function" ? level : "debug";
  try {
    // One text: what comes after it means something else in each logger.
    const result = logger[method](`polyrank (${facts.join(", ")}): ${message}`);
    // One that fails later must not end the program.
    result?.then?.(undefined, () => process.stderr.write(`polyrank: ${message}\n`));
    return true;
  } catch {
    return false;
  }
}
