// What this rank does, for `polyrank top`: the core's layout (`recorder/report.rs`), as far as it
// is known here, where nothing is counted. Knows no store.

import { named } from "./words.js";
import { openOperations } from "./place.js";

/** What stands for the name of the host. */
const HOST = "browser";

/** What the rank with this global number does: what it waits for, or else its oldest operation that
 * has not ended. `meeting`: what has been called that makes a group for which it waits, the name
 * of that group, and for how long it waits, in ms; or null. */
export function reportOf(rank, groups, meeting = null) {
  const own = groups.filter((group) => group.rank === rank && group.members.length > 0);
  const open = own.flatMap((group) => {
    return openOperations(group).map((operation) => ({ group, operation }));
  });
  open.sort((one, other) => other.operation.since_ms - one.operation.since_ms);
  const standing = open.find(({ operation }) => operation.is_awaited) ?? open[0] ?? null;
  const told = ({ group, operation }) => [named(operation), group.shown, operation.since_ms];
  const isAwaited = standing?.operation.is_awaited === true;
  const ofOperation = standing === null ? null : told(standing);
  const operation = isAwaited ? ofOperation : (meeting ?? ofOperation);
  return { rank, host: HOST, pid: 0, operation, groups: [] };
}
