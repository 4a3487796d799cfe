// Loggers that programs give, and the levels down to which they are told. Knows nothing of what is
// logged.

import { InvalidArgumentError, InvalidTypeError } from "../generated/errors.js";
import { STRING, expectAtMost, optionsOf } from "./options.js";

/** From the least to the most that is told. */
export const LEVELS = ["off", "error", "warn", "info", "debug", "trace"];
const METHODS = ["error", "warn", "info", "debug"];

/** The logger and the level, null where none is given, that `setLogger` was given. */
export function checkedLogger(given) {
  expectAtMost(2, "setLogger", given.length);
  const [logger, options] = given;
  const level = optionsOf("setLogger", options, { level: STRING }).level ?? null;
  if (level !== null && !LEVELS.includes(level)) {
    throw new InvalidArgumentError(
      `setLogger(): 'level' must be one of ${LEVELS.join(", ")}, not ${level}`,
      {},
    );
  }
  if (logger === null || logger === undefined) return { logger: null, level };
  const missing = METHODS.find((name) => typeof logger[name] !== "function");
  if (missing === undefined) return { logger, level };
  throw new InvalidTypeError(
    "setLogger(): 'logger' must have the methods error, warn, info and debug, " +
      `as console has; it has no ${missing}`,
  );
}

/** Hands a line to a method of the logger; whether that takes it. `fallBack` is for one that fails
 * later, which must not end the program. */
export function handTo(logger, method, line, fallBack) {
  try {
    const result = logger[method](line);
    result?.then?.(undefined, fallBack);
    return true;
  } catch {
    return false;
  }
}
