// Where this rank stands, as ranks in other languages tell it each other through a store: what it
// waits for, and what it called last in each group. The core's layout (`recorder/watch/place.rs`).
// Knows no store.

import { called } from "./called.js";
import { inFlight } from "../runtime/operations.js";

/** Most operations of a group that are told. */
const MAX_OPEN = 8;

/** Which arguments of a message are its other rank and its tag: at which positions, and under
 * which names. A name of a group's rank begins with `group`, or is that of a group's method. */
const MESSAGES = {
  PROCESS_GROUP_SEND: { peer: [1, "dst_rank"], tag: [2, "tag"] },
  PROCESS_GROUP_RECV: { peer: [1, "src_rank"], tag: [2, "tag"] },
  PROCESS_GROUP_RECV_ANYSOURCE: { peer: [-1, ""], tag: [1, "tag"] },
  DISTRIBUTED_SEND: { peer: [1, "dst"], tag: [3, "tag"], groupPeer: "group_dst" },
  DISTRIBUTED_ISEND: { peer: [1, "dst"], tag: [3, "tag"], groupPeer: "group_dst" },
  DISTRIBUTED_RECV: { peer: [1, "src"], tag: [3, "tag"], groupPeer: "group_src" },
  DISTRIBUTED_IRECV: { peer: [1, "src"], tag: [3, "tag"], groupPeer: "group_src" },
};

/** What of a group's operations has not ended, the oldest first: each as the core tells it, with
 * `source`, which is the same each time. */
export function openOperations(group) {
  const open = [];
  for (const operation of inFlight()) {
    if (operation.native.group === group.id) open.push(ofOperation(operation, group));
  }
  for (const composed of called.composed) {
    if (composed.group === group.id) open.push(ofComposed(composed, group));
  }
  return open.sort((one, other) => other.since_ms - one.since_ms);
}

/** Where the rank with this global number stands, which answers the question of this number;
 * `meeting`: at which rendezvous it waits for others, and for how long, in ms. */
export function placeOf(rank, answers, groups, meeting = null) {
  const own = groups.filter((group) => group.rank === rank && group.members.length > 0);
  return { answers, groups: own.map(groupPlace), site: null, held: null, meeting };
}

function groupPlace(group) {
  const all = openOperations(group);
  const collectives = all.filter((it) => it.is_collective).map((it) => it.sequence);
  const open = [...all.filter((it) => it.is_awaited), ...all.filter((it) => !it.is_awaited)];
  return {
    group: group.name,
    title: group.shown === group.name ? null : group.shown,
    open: open.slice(0, MAX_OPEN).map(({ source, ...told }) => told),
    first_open: collectives.length > 0 ? Math.min(...collectives) : null,
    last: lastOf(group),
  };
}

function lastOf(group) {
  const last = called.last(group.id);
  if (last === null) return null;
  return {
    title: last.title,
    sequence: last.sequence,
    is_collective: true,
    is_awaited: false,
    since_ms: Math.max(0, Math.round(performance.now() - last.at)),
    peer: null,
    tag: null,
  };
}

function ofOperation(operation, group) {
  const { native } = operation;
  const message = MESSAGES[native.call.key];
  return {
    source: operation,
    title: native.name,
    sequence: native.sequence,
    is_collective: native.call.title !== null,
    is_awaited: operation.isAwaited,
    since_ms: Math.round(operation.milliseconds()),
    peer: message === undefined ? null : peerOf(message, native, group),
    tag: message === undefined ? null : tagOf(message, native.call),
  };
}

function ofComposed(composed, group) {
  const { title, first, parts, peer, began } = composed;
  return {
    source: composed,
    title,
    sequence: first,
    is_collective: parts > 0,
    is_awaited: true,
    since_ms: Math.round(performance.now() - began),
    peer: peer === null ? null : (group.members[peer] ?? peer),
    tag: null,
  };
}

/** The global rank of the other end; null: it is any. */
function peerOf({ peer: [at, name], groupPeer }, { call, rank }, group) {
  const global = (number) => group.members[number] ?? number;
  const isOfGroup = groupPeer === undefined;
  if (call.args === null) {
    if (rank === -1) return null;
    return isOfGroup || call.rankName === groupPeer ? global(rank) : rank;
  }
  const ofGroup = groupPeer === undefined ? undefined : call.keywords?.[groupPeer];
  if (ofGroup !== undefined && ofGroup !== null) return global(Number(ofGroup));
  const given = call.args[at] ?? call.keywords?.[name] ?? null;
  if (given === null) return null;
  return isOfGroup ? global(Number(given)) : Number(given);
}

function tagOf({ tag: [at, name] }, call) {
  return Number(call.args?.[at] ?? call.keywords?.[name] ?? 0);
}
