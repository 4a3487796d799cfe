// Stops one rank in the debugger of its JavaScript, while the others wait: `breakpoint`. Knows no
// debugger; the platform does.

import { plainArguments } from "./arguments.js";
import { invoke, invokeNative, resolved } from "./calls.js";
import { NON_GROUP_MEMBER } from "./members.js";
import { platform } from "./native.js";
import { ANYTHING, DURATION, NUMBER, expectAtMost, optionsOf } from "./options.js";

const NAME = "breakpoint";
const KEY = "DISTRIBUTED_BREAKPOINT";
const SPEC = { key: KEY, name: NAME, required: 0, durations: [2], inOrder: true };
const RANKS = { key: "DISTRIBUTED_GET_PROCESS_GROUP_RANKS", name: NAME, required: 0 };
const RANK = { key: "DISTRIBUTED_GET_RANK", name: NAME, required: 0 };

const OPTIONS = { rank: NUMBER, skip: NUMBER, timeout: DURATION, group: ANYTHING };
/** An hour, ms. */
const TIMEOUT = 3_600_000;

/** How often each line has called it with something to skip. */
const calls = new Map();

/** Stops the rank at the line of the caller; the others go on when it does. */
export function breakpoint(given) {
  expectAtMost(1, NAME, arguments.length);
  const { rank = 0, skip = 0, timeout = TIMEOUT, group = null } = optionsOf(NAME, given, OPTIONS);
  if (group === NON_GROUP_MEMBER) return Promise.resolve();
  const call = { positional: [rank ?? 0, skip ?? 0, timeout, group], options: null };
  const { args, keywords } = plainArguments(SPEC, call);
  // Wrong arguments are refused before anybody stops.
  resolved(SPEC, null, args, keywords).free?.();
  const site = callSite();
  if (skip > 0 && isSkipped(site, skip)) return Promise.resolve();
  const own = invoke(RANKS, null, [group])[invoke(RANK, null, [group])];
  const why = own === (rank ?? 0) ? held(own, site) : null;
  // The others wait, whether or not this rank could be held.
  return invokeNative(SPEC, null, args, keywords, null).then(() => {
    if (why !== null) throw why;
  });
}

/** Holds this rank; why that could not be, or null. */
function held(rank, site) {
  try {
    platform.hold(rank, site);
    return null;
  } catch (error) {
    return error;
  }
}

function isSkipped(site, skip) {
  const count = (calls.get(site) ?? 0) + 1;
  calls.set(site, count);
  return count <= skip;
}

/** The line that has called `breakpoint`: `file:///train.mjs:17:3`, as the engine calls it. */
function callSite() {
  const holder = {};
  Error.captureStackTrace?.(holder, breakpoint);
  // Elsewhere the first two are this function, and the one that was called.
  const { stack = String(new Error().stack).split("\n").slice(2).join("\n") } = holder;
  return /[^\s(@]+:\d+:\d+/.exec(stack)?.[0] ?? "?";
}
