// What is said of an operation that waits long, in the words of the core
// (`recorder/watch/words.rs`). Knows neither stores nor clocks.

/** Most ranks of a list that are named. */
const NAMED_RANKS = 16;

/** That `operation` of this rank has waited in `group`, and where the others stand, as far as
 * `places` tell: `known` by global rank, and why others could not be asked. */
export function stalled(group, operation, waitedMs, places) {
  const own = group.rank;
  const waiting = [own];
  const elsewhere = new Map();
  for (const rank of concerned(group, operation)) {
    if (rank === own) continue;
    const text = whereIs(group, operation, places, rank);
    if (text === null) waiting.push(rank);
    else elsewhere.set(text, [...(elsewhere.get(text) ?? []), rank]);
  }
  waiting.sort((one, other) => one - other);
  const has = waiting.length === 1 ? "has" : "have";
  const who = `${rankNames(waiting)} ${has} waited for ${seconds(waitedMs)}`;
  const others = [...elsewhere].map(([text, ranks]) => `; ${rankNames(ranks)}${is(text, ranks)}`);
  const { obstacle } = places;
  const why = obstacle === null ? "" : ` (ranks cannot be asked where they are: ${obstacle})`;
  return `${subject(group, operation)}: ${who}${others.join("")}${why}`;
}

/** What waits: "allreduce #17 of group dp". */
export function subject(group, operation) {
  return `${named(operation)} of group ${group.name}`;
}

/** That it is over, after so long. */
export function takenBack(what, waitedMs) {
  return `${what} waits no longer, after ${seconds(waitedMs)}`;
}

/** "allreduce #17", or "recv from rank 2 (tag 5)". */
export function named({ title, sequence, is_collective: isCollective, peer, tag }) {
  if (isCollective) return `${title} #${sequence}`;
  if (tag === null) return title;
  const direction = title.startsWith("send") ? "to" : "from";
  const other = peer === null ? "any rank" : `rank ${peer}`;
  return `${title} ${direction} ${other} (tag ${tag})`;
}

/** "10 s", "1.5 s". */
export function seconds(milliseconds) {
  const value = milliseconds / 1000;
  return value < 9.95 ? `${value.toFixed(1)} s`.replace(".0 s", " s") : `${value.toFixed(0)} s`;
}

/** "rank 2", "ranks 0, 1 and 40 more". */
export function rankNames(ranks) {
  const names = ranks.slice(0, NAMED_RANKS).join(", ");
  const others = ranks.length - NAMED_RANKS;
  if (others > 0) return `ranks ${names} and ${others} more`;
  return ranks.length === 1 ? `rank ${names}` : `ranks ${names}`;
}

/** The global ranks on which the operation depends. */
function concerned(group, { is_collective: isCollective, peer }) {
  return group.members.filter((rank) => isCollective || peer === null || peer === rank);
}

/** Where a rank stands, as seen from an operation; null: it waits in the same. */
function whereIs(group, operation, places, rank) {
  const place = places.known.get(rank);
  if (place === undefined) {
    if (places.obstacle !== null) return "may be anywhere";
    return "did not answer: stopped, gone, or cut off from the store";
  }
  if (place.held) return `at its breakpoint, ${place.held}`;
  const here = place.groups.find((it) => it.group === group.name);
  if (operation.is_collective && here && hasOpen(here, operation.sequence)) return null;
  const awaited = awaitedOf(place);
  if (awaited !== null) {
    const [name, other] = awaited;
    const site = place.site ? `, at ${place.site}` : "";
    return `in ${named(other)} of group ${name} for ${seconds(other.since_ms)}${site}`;
  }
  const site = place.site ? `, and is at ${place.site}` : "";
  return calledLast(group, operation, here?.last ?? null) + site;
}

function calledLast(group, operation, last) {
  if (last === null) return `has called no collective of group ${group.name}`;
  if (operation.is_collective && last.sequence >= operation.sequence) {
    return `has done its part, and called ${named(last)}`;
  }
  return `waits for nothing; it last called ${named(last)}, ${seconds(last.since_ms)} ago`;
}

/** Whether the collective of this number was called, and is not done. */
function hasOpen({ open, first_open: first, last }, sequence) {
  const isBetween = first !== null && first <= sequence && sequence <= (last?.sequence ?? 0);
  return isBetween || open.some((it) => it.is_collective && it.sequence === sequence);
}

/** What the rank waits for, the oldest first, and in which group; null: nothing. */
function awaitedOf(place) {
  let oldest = null;
  for (const { group, open } of place.groups) {
    for (const operation of open) {
      const isOlder = oldest === null || operation.since_ms >= oldest[1].since_ms;
      if (operation.is_awaited && isOlder) oldest = [group, operation];
    }
  }
  return oldest;
}

/** What is said of one rank, as it is said of several. */
function ofSeveral(text) {
  return text
    .replace(/^has called/u, "have called")
    .replace(/^has done its part/u, "have done their part")
    .replace(/^waits for nothing; it last/u, "wait for nothing; they last")
    .replace(", and is at ", ", and are at ");
}

/** What connects ranks and where they are. */
function is(text, ranks) {
  if (!text.startsWith("in ") && !text.startsWith("at ")) {
    return ` ${ranks.length === 1 ? text : ofSeveral(text)}`;
  }
  return `${ranks.length === 1 ? " is" : " are"} ${text}`;
}
