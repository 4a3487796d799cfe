// Waiting for a message that is not received yet. Where a signal may end the wait it is made of
// looks, which do not wait themselves: nothing is left of one that was given up. Knows nothing of
// how messages travel.

import { asError } from "../generated/errors.js";
import { argument, plainArguments, signalOf, split } from "./arguments.js";
import { invokeAsync, resolved } from "./calls.js";
import { handleOf } from "./handles.js";

const LOOK = { key: "PROCESS_GROUP_IPROBE", name: "iprobe", required: 0 };

/** Between two looks, at first and at most. */
const FIRST_PAUSE_MS = 1;
const MAX_PAUSE_MS = 20;

/** Waits until there is a message: what it is. */
export function probe(spec, group, given) {
  const call = split(spec, given);
  const signal = signalOf(call.options);
  if (signal === null || handleOf(group) === null) return invokeAsync(spec, group, given);
  // What is wrong with the arguments is told of this call, not of a look.
  const { args, keywords } = plainArguments(spec, call);
  resolved(spec, handleOf(group), args, keywords);
  return looked(group, call, given, signal);
}

async function looked(group, call, given, signal) {
  const began = performance.now();
  const limit = group.timeout;
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
    const found = await invokeAsync(LOOK, group, given);
    if (found !== null) return found;
    const waited = Math.round(performance.now() - began);
    if (limit > 0 && waited >= limit) throw expired(group, call, waited);
    await paused(pause, signal);
  }
}

/** Keeps the process alive, as the wait of which it is a part would. */
function paused(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
  });
}

/** The error of a wait that was too long. The group goes on: nobody waits any more. */
function expired(group, call, waitedMs) {
  const peer = argument(call, 0, "srcRank") ?? null;
  const tag = argument(call, 1, "tag") ?? 0;
  const [name, waitingRank] = [group.groupName, group.rank()];
  const whom = peer === null ? "a message from any rank" : `rank ${peer}`;
  const detail = `waiting for ${whom}, with tag ${tag}`;
  return asError({
    kind: "CollectiveTimeout",
    message:
      `probe (operation 0 of group '${name}') on rank ${waitingRank} timed out after ` +
      `${waitedMs} ms: ${detail}`,
    fields: {
      group: name,
      collective: "probe",
      sequence: 0,
      rank: peer ?? waitingRank,
      missing_ranks: peer === null ? [] : [peer],
      waiting_rank: waitingRank,
      waited_ms: waitedMs,
      detail,
    },
  });
}
