// Which operations have waited too long, and when that was said. Knows no store, and nothing of who
// reads what is said.

import { openOperations } from "./place.js";
import { say } from "./say.js";
import { stalled, subject, takenBack } from "./words.js";

/** Stalls that were reported, by what waits. */
const reported = new Map();

/** What is to be said now: of each group the oldest operation that somebody waits for, if it has
 * waited for `limitMs`. Says of those that were reported and have ended that they go on. */
export function due(groups, limitMs) {
  const late = [];
  const open = new Set();
  for (const group of groups) {
    const operations = openOperations(group);
    for (const { source } of operations) open.add(source);
    const oldest = operations.find((it) => it.is_awaited);
    if (oldest === undefined || oldest.since_ms < limitMs) continue;
    const again = reported.get(oldest.source)?.again ?? 0;
    if (performance.now() >= again) late.push({ group, operation: oldest });
  }
  for (const [source, stall] of reported) {
    if (open.has(source)) continue;
    reported.delete(source);
    say(takenBack(stall.subject, performance.now() - stall.since));
  }
  return late;
}

/** Says what is wrong with those that are `late`, as far as `places` tell. */
export function report(late, places, limitMs) {
  for (const { group, operation } of late) {
    // To ask took a while.
    const { source } = operation;
    if (!openOperations(group).some((it) => it.source === source)) continue;
    say(stalled(group, operation, operation.since_ms, places));
    const now = performance.now();
    const pause = 2 * (reported.get(source)?.pause ?? limitMs / 2);
    reported.set(source, {
      subject: subject(group, operation),
      since: now - operation.since_ms,
      again: now + pause,
      pause,
    });
  }
}
