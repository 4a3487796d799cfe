// What is said of an operation that waits long, and of ranks that do not come, in the words of the
// core (`recorder/watch/words.rs`, `recorder/meetings.rs`): `words.json` there has cases of both.
// Knows neither stores nor clocks.

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
    else if (elsewhere.has(text.one)) elsewhere.get(text.one).ranks.push(rank);
    else elsewhere.set(text.one, { text, ranks: [rank] });
  }
  waiting.sort((one, other) => one - other);
  const has = waiting.length === 1 ? "has" : "have";
  const who = `${rankNames(waiting)} ${has} waited for ${seconds(waitedMs)}`;
  const others = [...elsewhere.values()].map(({ text, ranks }) => {
    return `; ${rankNames(ranks)} ${ranks.length === 1 ? text.one : text.several}`;
  });
  const { obstacle } = places;
  const why = obstacle === null ? "" : ` (ranks cannot be asked where they are: ${obstacle})`;
  return `${subject(group, operation)}: ${who}${others.join("")}${why}`;
}

/** That ranks have not come to `meeting`, in which this one has waited for so long; `obstacle`: why
 * it is not known who. Of a meeting are told `group`, its name; its `size`; the `call` that makes
 * it out of another, or null; and the ranks that are `missing`, and how many `others` are. */
export function late(meeting, obstacle, waited) {
  const { call, missing, others, size } = meeting;
  const has = missing.length + others === 1 ? "has" : "have";
  // Ranks of a call are named in it.
  const who = `${rankNames(missing, others)}${call === null ? ` of ${size}` : ""} ${has}`;
  const text = obstacle === null
    ? `${who} not come to the rendezvous`
    : `ranks have not come, and the store does not say which (${obstacle})`;
  return `${meetingSubject(meeting)}: ${text}; waited for ${waited}`;
}

/** What a rank is in that waits there: "the rendezvous of group 'default_pg'". */
export function meetingName(meeting) {
  const text = meetingSubject(meeting);
  return meeting.call === null ? `the rendezvous of ${text}` : text;
}

/** What is over when all have come. */
export function meetingOver(meeting) {
  return meeting.call === null ? "the rendezvous" : meetingName(meeting);
}

/** "group 'default_pg'", "new_group of ranks 0, 1", "new_group of group tp (ranks 0, 1)". */
function meetingSubject({ group, call }) {
  if (call === null) return `group '${group}'`;
  const title = groupTitle(call.group, call.description);
  const ranks = rankNames(call.members);
  // What was numbered for want of a name says nothing to its user.
  const isNumbered = title === call.group && call.group.includes(":split:");
  return isNumbered
    ? `${call.function} of ${ranks}`
    : `${call.function} of group ${title} (${ranks})`;
}

/** What its user calls a group of this name and description. */
export function groupTitle(name, description) {
  // What groups have where no description was given.
  const isUnsaid = ["", "undefined"].includes(description) || description.endsWith(":split");
  return isUnsaid ? name : description;
}

/** "tp (default_pg:split:64dbcbc3ab5bf1a5:1)". */
export function withName(title, name) {
  return `${title} (${name})`;
}

/** What waits: "allreduce #17 of group dp". */
export function subject(group, operation) {
  return `${named(operation)} of group ${group.shown}`;
}

/** That it is over, after so long. */
export function takenBack(what, waitedMs) {
  return `${what} waits no longer, after ${seconds(waitedMs)}`;
}

/** "allreduce #17", or "recv from rank 2 (tag 5)". */
export function named({ title, sequence, is_collective: isCollective, peer, tag }) {
  if (isCollective) return `${title} #${sequence}`;
  if (isNone(tag)) return title;
  const direction = title.startsWith("send") ? "to" : "from";
  const other = isNone(peer) ? "any rank" : `rank ${peer}`;
  return `${title} ${direction} ${other} (tag ${tag})`;
}

/** "10 s", "1.5 s". */
export function seconds(milliseconds) {
  const value = milliseconds / 1000;
  return value < 9.95 ? `${value.toFixed(1)} s`.replace(".0 s", " s") : `${value.toFixed(0)} s`;
}

/** "rank 2", "ranks 0, 1 and 40 more", of which so many `more` are not listed. */
export function rankNames(ranks, more = 0) {
  const names = ranks.slice(0, NAMED_RANKS).join(", ");
  const others = more + Math.max(0, ranks.length - NAMED_RANKS);
  if (names === "") return others === 1 ? "1 rank" : `${others} ranks`;
  if (others > 0) return `ranks ${names} and ${others} more`;
  return ranks.length === 1 ? `rank ${names}` : `ranks ${names}`;
}

/** The global ranks on which the operation depends. */
function concerned(group, { is_collective: isCollective, peer }) {
  return group.members.filter((rank) => isCollective || isNone(peer) || peer === rank);
}

/** Where a rank stands, as seen from an operation: what is said of `one`, and of `several`; null:
 * it waits in the same. */
function whereIs(group, operation, places, rank) {
  const place = places.known.get(rank);
  if (place === undefined) {
    if (places.obstacle !== null) return ofAny("may be anywhere");
    return ofAny("did not answer: stopped, gone, or cut off from the store");
  }
  if (place.held) {
    const line = `breakpoint, ${place.held}`;
    return { one: `is at its ${line}`, several: `are at their ${line}` };
  }
  const here = place.groups.find((it) => it.group === group.name);
  if (operation.is_collective && here && hasOpen(here, operation.sequence)) return null;
  const awaited = awaitedOf(place);
  if (awaited !== null) {
    const [other, called] = awaited;
    const title = other.title ?? other.group;
    const isShared = title === group.shown && other.group !== group.name;
    const what = `${named(called)} of group ${isShared ? withName(title, other.group) : title}`;
    return within(what, called.since_ms, place.site ?? called.site);
  }
  if (place.meeting) return within(...place.meeting, place.site);
  return idle(group, operation, here?.last ?? null, place.site);
}

function ofAny(text) {
  return { one: text, several: text };
}

/** In something for so long. */
function within(what, sinceMs, site) {
  const text = `in ${what} for ${seconds(sinceMs)}${isNone(site) ? "" : `, at ${site}`}`;
  return { one: `is ${text}`, several: `are ${text}` };
}

/** It waits for nothing, and has called this collective of the group last. */
function idle(group, operation, last, site) {
  const at = (are) => isNone(site) ? "" : `, and ${are} at ${site}`;
  const both = (one, several, rest) => {
    return { one: one + rest + at("is"), several: several + rest + at("are") };
  };
  if (last === null) {
    return both("has", "have", ` called no collective of group ${group.shown}`);
  }
  if (operation.is_collective && last.sequence >= operation.sequence) {
    const rest = `, and called ${named(last)}`;
    return both("has done its part", "have done their part", rest);
  }
  const rest = ` last called ${named(last)}, ${seconds(last.since_ms)} ago`;
  return both("waits for nothing; it", "wait for nothing; they", rest);
}

/** Whether the collective of this number was called, and is not done. */
function hasOpen({ open, first_open: first, last }, sequence) {
  const isBetween = !isNone(first) && first <= sequence && sequence <= (last?.sequence ?? 0);
  return isBetween || open.some((it) => it.is_collective && it.sequence === sequence);
}

/** What the rank waits for, the oldest first, and in which of its groups; null: nothing. */
function awaitedOf(place) {
  let oldest = null;
  for (const group of place.groups) {
    for (const operation of group.open) {
      const isOlder = oldest === null || operation.since_ms >= oldest[1].since_ms;
      if (operation.is_awaited && isOlder) oldest = [group, operation];
    }
  }
  return oldest;
}

/** Whether a rank has told nothing there. */
function isNone(value) {
  return value === null || value === undefined;
}
