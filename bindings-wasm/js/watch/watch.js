// Who watches over what this realm calls, as the core does in other languages
// (`recorder/watch/mod.rs`): says who is missing where, when somebody waits long, and tells other
// ranks of the job what this one has called. Looks once a second, only while there is a group whose
// ranks meet in a store, or a call that joins one; a page that computes for long cannot look.

import { FirstMeeting, JOINS, MeetingOfCall, descriptionOf, makesGroup } from "./meetings.js";
import { allGroups, forgetGroup, groupOf, noteGroup, noteRoot, rootGroups } from "./groups.js";
import { obstacleOf, within } from "./asking.js";
import { called } from "./called.js";
import { Joining } from "./late.js";
import { reportOf } from "./reports.js";
import { due, report } from "./stalls.js";
import { commName } from "../runtime/comm_name.js";
import { HANDLE, whenKept } from "../runtime/handles.js";
import { placeOf } from "./place.js";

/** How long an operation may take until it is reported, unless told otherwise. */
const STALL_MS = 10_000;
/** The least that can be set. */
const MIN_STALL_MS = 50;
const LOOK_INTERVAL_MS = 1000;
/** How long those who are asked may take to answer: they look once a second. */
const ANSWER_LIMIT_MS = 2500;
/** How long one waits for answers before it looks for them again. */
const FIRST_PAUSE_MS = 100;

/** The key that is counted up by who asks the others for anything. */
const ASKED = "watch/asked";

/** The key that is counted up by who asks what all ranks do, and how those of answers begin. */
const REPORTS_ASKED = "watch/report requests";
const REPORT = "watch/report";

const DEFAULT_GROUP = "DISTRIBUTED_DEFAULT_GROUP";
/** Methods after which groups are no longer watched. */
const LEAVES = new Set(["PROCESS_GROUP_SHUTDOWN", "DISTRIBUTED_DESTROY_PROCESS_GROUP"]);

let limitMs = STALL_MS;
let timer = null;
let isAsking = false;
/** Calls that wait for the other ranks of a group. */
const joining = new Set();
/** Groups of which an answer is on its way. */
const answering = new Set();

/** Reports what waits for longer than this; 0: nothing. */
export function setStallLimit(milliseconds) {
  limitMs = milliseconds === 0 ? Infinity : Math.max(MIN_STALL_MS, milliseconds);
  stop();
  start();
}

/** `native`, the native half, of whose calls this learns. */
export function watched(native) {
  whenKept((object) => {
    if (object[HANDLE].marked.typeName !== "ProcessGroup") return;
    noteGroup(object);
    start();
  });
  return {
    ...native,
    invokeAsync(self, key, args, keywords, cancel) {
      const promise = native.invokeAsync(self, key, args, keywords, cancel);
      return JOINS.has(key) ? joined(native, promise, key, args, keywords) : promise;
    },
    resolve(self, key, args, keywords) {
      const call = native.resolve(self, key, args, keywords);
      if (makesGroup(key)) noteMaking(call, descriptionOf(key, args, keywords));
      if (LEAVES.has(key) || called.isComposed(key)) noteBegin(call, key, commName());
      return call;
    },
  };
}

/** Notes when `call` begins and ends, which the user may have given a name. */
function noteBegin(call, key, name) {
  const { begin } = call;
  call.begin = (cancel) => {
    const leaves = LEAVES.has(key) ? call.groups : [];
    const ended = called.begin(key, call, name) ?? (() => leaves.forEach(forgetGroup));
    const promise = begin.call(call, cancel);
    promise.then(ended, ended);
    return promise;
  };
}

/** A call that joins a group: reports who does not come to it. */
async function joined(native, promise, key, args, keywords) {
  const made = await followed(promise, new FirstMeeting(native, key, args, keywords));
  if (made?.type === "ProcessGroup") noteRoot(made.id);
  else if (key === "DISTRIBUTED_INIT_PROCESS_GROUP") noteDefault(native);
  return made;
}

/** Reports who does not come when `call` begins, which makes a group out of another. */
function noteMaking(call, description) {
  const { begin } = call;
  call.begin = (cancel) => {
    const parent = groupOf(call.groups[0]);
    const promise = begin.call(call, cancel);
    return parent === undefined
      ? promise
      : followed(promise, new MeetingOfCall(parent, description));
  };
}

/** Reports who does not come to `meeting`, for which `promise` waits. */
async function followed(promise, meeting) {
  const call = new Joining(meeting, limitMs);
  joining.add(call);
  start();
  let isJoined = false;
  try {
    const made = await promise;
    isJoined = true;
    return made;
  } finally {
    joining.delete(call);
    call.end(isJoined);
  }
}

function noteDefault(native) {
  let group;
  try {
    group = native.invoke(null, DEFAULT_GROUP, [], null);
  } catch {
    // It was left already.
    return;
  }
  called.defaultGroup = group.id;
  noteRoot(group.id);
  group.free?.();
}

function start() {
  if (timer !== null || (joining.size === 0 && rootGroups().length === 0)) return;
  called.now = performance.now();
  timer = setInterval(look, Math.min(LOOK_INTERVAL_MS, limitMs));
  // Under Node, a timer keeps the process alive.
  timer.unref?.();
}

function stop() {
  clearInterval(timer);
  timer = null;
}

function look() {
  called.now = performance.now();
  const roots = rootGroups();
  if (roots.length === 0 && joining.size === 0) stop();
  for (const call of joining) call.look();
  for (const root of roots) answer(root);
  const groups = allGroups();
  if (isAsking) return;
  const late = due(groups, limitMs);
  if (late.length === 0) return;
  isAsking = true;
  places(roots, groups).then((found) => report(late, found, limitMs)).finally(() => {
    isAsking = false;
  });
}

/** Tells where this rank stands, if somebody has asked since it last told. */
async function answer(root) {
  if (answering.has(root)) return;
  answering.add(root);
  const { store } = root;
  try {
    // Looking makes no key.
    if (!(await within(store.check([ASKED])))) return;
    const asked = await within(store.add(ASKED, 0));
    if (asked === root.answered.asked) return;
    const groups = allGroups();
    groups.forEach((group) => group.refresh());
    const meeting = await standingOf(root.rank);
    const told = meeting === null ? null : [meeting.name, meeting.waits];
    await within(store.set(keyOf(root.rank), encoded(placeOf(root.rank, asked, groups, told))));
    root.answered.asked = asked;
    await answerReport(root, groups, meeting);
  } catch (error) {
    if (error?.kind === "InvalidGroup") takeAnotherStore(root, store);
  } finally {
    answering.delete(root);
  }
}

/** Tells what this rank does, if somebody has asked all ranks since it last told. */
async function answerReport({ store, rank, answered }, groups, meeting) {
  if (!(await within(store.check([REPORTS_ASKED])))) return;
  const last = await within(store.add(REPORTS_ASKED, 0));
  if (last > answered.report) {
    const told = meeting === null ? null : [...meeting.call, meeting.waits];
    await within(store.set(`${REPORT}/${rank}`, encoded([last, reportOf(rank, groups, told)])));
  }
  answered.report = last;
}

/** The first meeting at which a rank of this realm waits; null: none. */
async function standingOf(rank) {
  for (const call of joining) {
    const standing = call.parent?.rank === rank ? await call.standing() : null;
    if (standing !== null) return standing;
  }
  return null;
}

/** The store is closed: the group was left, or has other members. */
function takeAnotherStore(root, closed) {
  if (root.store !== closed) return;
  root.store = null;
  called.forget(root.id);
  root.takeStore();
}

/** Where ranks stand, as far as they answer: those of this realm, and others of these groups. */
async function places(roots, groups) {
  const found = { known: new Map(), obstacle: null };
  groups.forEach((group) => group.refresh());
  for (const { rank } of groups) found.known.set(rank, placeOf(rank, 0, groups));
  if (roots.length === 0) found.obstacle = "they meet in no store that this one could ask";
  for (const root of roots) {
    try {
      await ask(root, found.known);
    } catch (error) {
      found.obstacle = obstacleOf(error);
    }
  }
  return found;
}

/** Asks the ranks of a group that are not `known`, and waits until they have answered. */
async function ask({ store, members }, known) {
  let open = members.filter((rank) => !known.has(rank));
  if (open.length === 0) return;
  const question = await within(store.add(ASKED, 1));
  const until = performance.now() + ANSWER_LIMIT_MS;
  for (let pause = FIRST_PAUSE_MS; open.length > 0; pause *= 2) {
    const told = await Promise.all(open.map((rank) => toldBy(store, rank, question)));
    told.forEach((place, at) => place !== null && known.set(open[at], place));
    open = open.filter((rank) => !known.has(rank));
    if (performance.now() + pause >= until) return;
    // Many ask at the same time, of one store.
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** Where a rank stands, if it has answered this question, or a later one; else null. */
async function toldBy(store, rank, question) {
  const key = keyOf(rank);
  if (!(await within(store.check([key])))) return null;
  const place = decoded(await within(store.get(key)));
  return place !== null && place.answers >= question ? place : null;
}

function keyOf(rank) {
  return `watch/place/${rank}`;
}

function encoded(value) {
  return new TextEncoder().encode(JSON.stringify(value));
}

/** What a rank told; null if it is something else. */
function decoded(bytes) {
  try {
    const place = JSON.parse(new TextDecoder().decode(bytes));
    return Array.isArray(place.groups) ? place : null;
  } catch {
    return null;
  }
}
