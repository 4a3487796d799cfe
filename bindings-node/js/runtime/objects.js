// The free functions that carry objects: encode, let the core exchange payloads, decode into the
// list that was passed. What cannot be encoded is reported to the other ranks, which would wait for
// it. A payload takes two operations, its size and its bytes: collectives keep their group's queue
// until both are over, and messages go one behind the other from rank to rank.

import { Marked, argument, plainArguments, signalOf, split } from "./arguments.js";
import { begun, isNonMember, nonMemberResult, resolved } from "./calls.js";
import { decode, encode } from "./codec.js";
import { InvalidArgumentError, InvalidTypeError, wrapped } from "../generated/errors.js";
import { aroundObjects, hasHooks, hooksOf } from "./hooks.js";
import { inOrder } from "./queues.js";
import { untilAborted } from "./signals.js";
import { typeName } from "./views.js";

/** All ranks get the objects of the source, in their lists. */
export function broadcastObjectList(spec, given) {
  return exchange(spec, given, [sentList], (payload, [list]) => {
    if (payload !== null) replace(list, decode(payload));
    return list;
  });
}

/** All ranks get every rank's object. */
export function allGatherObject(spec, given) {
  return exchange(spec, given, [places, sent], (payloads, [list]) => fill(list, payloads));
}

/** The root gets every rank's object. */
export function gatherObject(spec, given) {
  return exchange(spec, given, [sent, places], (payloads, [, list]) => {
    return payloads === null ? list : fill(list, payloads);
  });
}

/** Each rank gets its object of the root's list. */
export function scatterObjectList(spec, given) {
  return exchange(spec, given, [places, sentItems], (payload, [list]) => {
    list[0] = decode(payload);
    return list;
  });
}

/** Sends the objects of a list. */
export function sendObjectList(spec, given) {
  return exchange(spec, given, [sentList], () => undefined, messages);
}

/** Receives objects into a list; the sender's global rank. */
export function recvObjectList(spec, given) {
  return exchange(spec, given, [places], ({ payload, source }, [list]) => {
    replace(list, decode(payload));
    return source;
  }, messages);
}

/** Messages on their way, by direction and group: each with its peer, and when it is over. */
const lanes = new Map();

/** Calls the core with the first arguments as payloads, and stores the results in their lists. */
function exchange(spec, given, payloads, finish, way = collectives) {
  const call = split(spec, given);
  const signal = signalOf(call.options);
  if (isNonMember(spec, call)) return Promise.resolve(nonMemberResult(spec));
  const values = payloads.map((_, place) => argument(call, place, spec.objects[place]));
  const positional = [...call.positional];
  const options = { ...call.options };
  payloads.forEach((marked, place) => {
    const value = values[place];
    const isGiven = place < call.positional.length || spec.objects[place] in (call.options ?? {});
    if (marked === sent && !isGiven) throw missing(spec, place);
    // No list is none, where there may be none; nothing is an object, too.
    const isNone = value === undefined || (value === null && place >= spec.required);
    if (marked !== sent && isNone) return;
    const payload = new Marked({ kind: "object", ...marked(value, spec, place) });
    if (place < positional.length) positional[place] = payload;
    else options[spec.objects[place]] = payload;
  });
  const { args, keywords } = plainArguments(spec, { positional, options });
  const exchanged = resolved(spec, null, args, keywords);
  const begin = () => untilAborted(signal, (cancellation) => {
    return way(exchanged, { cancellation, signal, direction: spec.key });
  });
  const hooks = hasHooks() ? hooksOf(exchanged.groups[0]) : null;
  const answer = hooks === null ? begin() : withHooks(hooks, spec, exchanged, begin);
  return answer.then((value) => finish(value ?? null, values));
}

/** As `begin`, with the hooks of the group. */
function withHooks(hooks, spec, call, begin) {
  const name = spec.key.slice("DISTRIBUTED_".length);
  const about = { name, rank: call.rank(), root: wrapped(() => call.peer()) ?? -1 };
  return aroundObjects(hooks, about, (why) => call.refuse(why), begin);
}

/** In the order of the group; a rank that no longer waits for it takes part all the same. */
function collectives(call) {
  return inOrder(call.groups, () => begun(call, undefined));
}

/** Behind the messages to, or from, the same rank; one from any rank is from each of them. */
async function messages(call, { cancellation, signal, direction }) {
  const peer = wrapped(() => call.peer()) ?? null;
  const key = `${call.groups[0]} ${direction}`;
  const lane = lanes.get(key) ?? new Set();
  lanes.set(key, lane);
  const isBefore = (other) => peer === null || other.peer === null || other.peer === peer;
  const before = [...lane].filter(isBefore).map((other) => other.over);
  const message = { peer, over: null };
  const answer = behind(before, () => {
    if (signal?.aborted) throw signal.reason;
    return begun(call, cancellation);
  });
  const forget = () => {
    lane.delete(message);
    if (lane.size === 0 && lanes.get(key) === lane) lanes.delete(key);
  };
  message.over = answer.then(forget, forget);
  lane.add(message);
  return answer;
}

/** What `begin` gives, when all of `before` are over; immediately if there is none. */
async function behind(before, begin) {
  if (before.length > 0) await Promise.all(before);
  return begin();
}

/** The core would tell what it got instead of lists and objects, which is not what was passed. */
function missing(spec, place) {
  const what = `argument '${spec.objects[place]}' is missing or undefined`;
  return new InvalidTypeError(`${spec.name}(): ${what}; null is an object, too`);
}

function sent(object) {
  try {
    return { bytes: encode(object) };
  } catch (error) {
    return { failed: error.message };
  }
}

function sentList(list, spec, place) {
  return { ...places(list, spec, place), ...sent(list) };
}

function sentItems(list, spec, place) {
  return { ...places(list, spec, place), items: Array.from(list, sent) };
}

/** How many objects a list has place for. */
function places(list, spec, place) {
  if (Array.isArray(list)) return { length: list.length };
  const what = `argument '${spec.objects[place]}' must be a list, not ${typeName(list)}`;
  throw new InvalidTypeError(`${spec.name}(): ${what}`);
}

function fill(list, payloads) {
  payloads.forEach((payload, place) => {
    list[place] = decode(payload);
  });
  return list;
}

function replace(list, came) {
  if (!Array.isArray(came) || came.length !== list.length) {
    const count = Array.isArray(came) ? came.length : "other";
    const text = `the list has ${list.length} places, but ${count} objects came`;
    throw new InvalidArgumentError(text, {});
  }
  came.forEach((object, place) => {
    list[place] = object;
  });
}
