// What happened to a quorum, in words. Pure.

import type { Change } from "./program";
import type { Member } from "./quorum";

/** What a change was. */
export function describe(change: Change): string {
  const { quorum, step, gone, came, heals, pause } = change;
  const { number, members } = quorum;
  const names = (some: readonly Member[]) => some.map(({ name, id }) => `${name} ${id}`).join(", ");
  const parts = [];
  if (gone.length > 0) {
    parts.push(`gone: ${names(gone)}`);
  }
  if (came.length > 0) {
    parts.push(`new: ${names(came)}`);
  }
  const healed = heals.map(({ rank, from }) => `rank ${rank} takes the state of rank ${from}`);
  const ranks = `${members.length} rank${members.length === 1 ? "" : "s"}`;
  const all = [`${ranks} from step ${step} on`, ...parts, ...healed];
  const after = pause === null ? "" : `, ${Math.round(pause)} ms after the last step`;
  return `Quorum ${number}: ${all.join("; ")}${after}`;
}
