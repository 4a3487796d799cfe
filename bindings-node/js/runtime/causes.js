// What code of the program threw that became an error of the core, the last ones: the error that is
// made of that has it, or is it. Knows nothing of whose code it was.

import { ReductionFailedError, findCausesBy } from "../generated/errors.js";
import { WrongResult } from "./reductions.js";

/** How many errors are kept at most for those that they become. */
const MAX_CAUSES = 16;

/** How messages end that errors became, and whose these are; null: it is raised once. */
let causes = [];

/** Keeps what was thrown, for a message that ends so. */
export function noteCause(told, owner, error) {
  causes.push({ told, owner, error });
  if (causes.length > MAX_CAUSES) causes.shift();
}

/** Nobody asks for errors of this owner any more. */
export function forgetCauses(owner) {
  causes = causes.filter((cause) => cause.owner !== owner);
}

/** The kind and the text of what was thrown, which may be anything, even what throws when it is
 * looked at. */
export function described(error) {
  if (error === undefined || error === null) return ["", `it threw ${error}`];
  try {
    if (error instanceof WrongResult) return ["", error.message];
    const text = `${String(error.name ?? "Error")}: ${String(error.message ?? error)}`;
    return [String(error.kind ?? ""), text];
  } catch {
    return ["", NO_TEXT];
  }
}

/** The message of what was thrown. */
export function textOf(error) {
  try {
    return String(error?.message ?? error);
  } catch {
    return NO_TEXT;
  }
}

const NO_TEXT = "Error: what was thrown has no text";

/** What was thrown that became the error with this message. */
function causeOf(message) {
  const found = causes.findLast(({ told }) => String(message).endsWith(told));
  if (found === undefined) return undefined;
  if (found.owner === null) causes = causes.filter((cause) => cause !== found);
  const { error, told } = found;
  if (error === undefined || error === null || told.endsWith(NO_TEXT)) {
    return { error, standsAlone: false };
  }
  if (error instanceof WrongResult) {
    found.error = Object.assign(new ReductionFailedError(message, {}), { cause: error });
  }
  return { error: found.error, standsAlone: true };
}

findCausesBy(causeOf);
