// Where this rank meets others for a group, and who of them has not come. Knows the keys under
// which ranks note that they came (`rendezvous/join.rs`), and in which call they wait
// (`process_group/group_calls.rs`).

import { within } from "./asking.js";

const LIST_KEYS = "STORE_LIST_KEYS";
/** Most ranks that are looked for. */
const MAX_RANKS = 1024;

const decoder = new TextDecoder();

/** The meeting of a call that joins a group which is not made out of another: `args` and `keywords`
 * are those of the native half's method. */
export class FirstMeeting {
  /** Nobody knows yet which rank of a job this one is. */
  parent = null;
  #native;
  #given;

  constructor(native, key, args, keywords) {
    this.#native = native;
    this.#given = givenOf(key, args, keywords ?? {});
  }

  /** What there is to say of it (`words.js`); null: that is not known, or all have come. */
  async look() {
    const { store, url } = this.#given;
    if (store !== null) return this.#lookIn(store);
    if (url === null || !/^wss?:/iu.test(url)) return null;
    const opened = await this.#ask(null, "WEB_SOCKET_STORE_NEW", [url.replace(/\?.*$/su, "")]);
    try {
      return await this.#lookIn(opened);
    } finally {
      opened.free?.();
    }
  }

  async #lookIn(store) {
    const keys = new Set(await this.#ask(store, LIST_KEYS, []));
    const place = placeIn(keys, this.#given);
    if (place === null) return null;
    const [answer] = await this.#ask(store, "STORE_MULTI_GET", [[`${place}world_size`]]);
    const size = Number(decoder.decode(answer));
    const missing = missingOf(keys, place, size);
    if (missing.length === 0) return null;
    return { group: place.split("/").at(-3), call: null, size, missing, others: 0 };
  }

  #ask(store, key, args) {
    const { cancellation, cancel, invokeAsync } = this.#native;
    const number = cancellation();
    const answer = invokeAsync(store, key, args, null, number);
    return within(answer, () => cancel(number));
  }
}

/** The meeting of a call that makes a group out of `parent`. */
export class MeetingOfCall {
  parent;
  #description;
  #store;

  constructor(parent, description) {
    this.parent = parent;
    this.#description = description;
    this.#store = parent.storeOfCalls();
  }

  /** As [`FirstMeeting.look`]. */
  async look() {
    const meeting = await this.name();
    if (meeting === null) return null;
    const place = `polyrank/${meeting.group}/assembly/join/`;
    const keys = new Set(await within(this.#store.listKeys()));
    const { members } = meeting.call;
    const missing = missingOf(keys, place, meeting.size).map((rank) => members[rank]);
    return missing.length === 0 ? null : { ...meeting, missing };
  }

  /** The same, whoever has come: what this rank has told of the call in which it waits; null while
   * it has told nothing, or waits in several. */
  async name() {
    const own = this.parent.members.indexOf(this.parent.rank);
    const key = `calls/${own}`;
    if (this.#store === null || !(await within(this.#store.check([key])))) return null;
    const text = decoder.decode(await within(this.#store.get(key)));
    const [, name, ranks, group] = /^(.+)\n([\d,]+)\n(.*)$/su.exec(text) ?? [];
    if (group === undefined) return null;
    const members = ranks.split(",").map((rank) => this.parent.members[rank] ?? Number(rank));
    const call = { function: name, group, description: this.#description, members };
    return { group, call, size: members.length, missing: [], others: 0 };
  }
}

function missingOf(keys, place, size) {
  const missing = [];
  for (let rank = 0; rank < size && missing.length < MAX_RANKS; rank += 1) {
    if (!keys.has(`${place}${rank}`)) missing.push(rank);
  }
  return missing;
}

/** What stands before the keys of the ranks that join; null if this rank has none there, or all
 * have come. Of generations of one group, it is the last. */
function placeIn(keys, { group, rank, room }) {
  const end = `polyrank/${group}/join/`;
  let place = null;
  for (const key of keys) {
    const at = key.lastIndexOf("/") + 1;
    const here = key.slice(0, at);
    if (!(here === end || here.endsWith(`/${end}`)) || keys.has(`${here}verdict`)) continue;
    if (room !== null && !here.startsWith(`room/${room}/`)) continue;
    if (room === null && here.startsWith("room/")) continue;
    if (key.slice(at) !== "world_size" || (rank >= 0 && !keys.has(`${here}${rank}`))) continue;
    if (place === null || here.length > place.length || here > place) place = here;
  }
  return place;
}

/** Where each method has what of its arguments: at which position, and under which name. */
const PLACES = {
  DISTRIBUTED_INIT_PROCESS_GROUP: { url: 1, rank: 4, store: 5, group: 6 },
  DISTRIBUTED_JOIN_GROUP: { group: 0, url: 1, rank: 4, store: 5 },
  PROCESS_GROUP_NEW: { store: 0, rank: 1, group: 5 },
};
const NAMES = { url: "init_method", rank: "rank", store: "store", group: "group_name" };

/** The names of methods that join a group which is not made out of another. */
export const JOINS = new Set(Object.keys(PLACES));

/** Methods that make a group out of another, and where each has its description. */
const MAKES = new Map(Object.entries({
  DISTRIBUTED_NEW_GROUP: 5,
  DISTRIBUTED_SPLIT_GROUP: 4,
  PROCESS_GROUP_SPLIT_GROUP: 4,
}));

/** Whether calls of this method make a group out of another. */
export function makesGroup(key) {
  return MAKES.has(key);
}

/** What the user of such a call says that its group is. */
export function descriptionOf(key, args, keywords) {
  return String(args[MAKES.get(key)] ?? keywords?.group_desc ?? "");
}

function givenOf(key, args, keywords) {
  const given = {};
  for (const [what, name] of Object.entries(NAMES)) {
    const at = PLACES[key][what];
    given[what] = (at === undefined ? null : args[at]) ?? keywords[name] ?? null;
  }
  const query = new URLSearchParams(String(given.url ?? "").replace(/^[^?]*/su, ""));
  return {
    store: given.store?.handle ?? null,
    url: given.url,
    rank: Number(given.rank ?? query.get("rank") ?? -1),
    room: given.url === null ? null : query.get("room"),
    group: given.group || "default_pg",
  };
}
