// Says who has not come to a group that this rank waits to join. Knows nothing of how ranks meet,
// but the keys under which they note that they came (`rendezvous/join.rs`).

import { rankNames, seconds, takenBack } from "./words.js";
import { say } from "./say.js";

const LIST_KEYS = "STORE_LIST_KEYS";
/** Most ranks that are looked for. */
const MAX_RANKS = 1024;
/** How long the store may take. */
const STORE_LIMIT_MS = 2000;

const decoder = new TextDecoder();

/** A call that joins a group. */
export class Joining {
  #native;
  #given;
  #began = performance.now();
  #next;
  #pause;
  #isLooking = false;
  #hasSaid = false;
  #isOver = false;

  /** `args` and `keywords` are those of the native half's method. */
  constructor(native, key, args, keywords, limitMs) {
    this.#native = native;
    this.#given = givenOf(key, args, keywords ?? {});
    this.#pause = limitMs;
    this.#next = limitMs;
  }

  /** Says who is missing, if this rank has waited for long, and after twice as long again. */
  async look() {
    const waited = performance.now() - this.#began;
    if (this.#isLooking || waited < this.#next) return;
    this.#isLooking = true;
    this.#pause *= 2;
    this.#next = waited + this.#pause;
    try {
      const missing = await this.#missing();
      if (missing === null || this.#isOver) return;
      say(`${missing} not come to the rendezvous; waited for ${seconds(waited)}`);
      this.#hasSaid = true;
    } catch {
      // Whoever waits for a store that does not answer is told of that by the store.
    } finally {
      this.#isLooking = false;
    }
  }

  /** It has ended, well or not. */
  end(isJoined) {
    this.#isOver = true;
    if (!this.#hasSaid || !isJoined) return;
    say(takenBack("the rendezvous", performance.now() - this.#began));
  }

  /** Who has not come, in words; null: that is not known, or all have. */
  async #missing() {
    const { store, url } = this.#given;
    if (store !== null) return this.#missingIn(store);
    if (url === null || !/^wss?:/iu.test(url)) return null;
    const opened = await this.#ask(null, "WEB_SOCKET_STORE_NEW", [url.replace(/\?.*$/su, "")]);
    try {
      return await this.#missingIn(opened);
    } finally {
      opened.free?.();
    }
  }

  async #missingIn(store) {
    const keys = new Set(await this.#ask(store, LIST_KEYS, []));
    const place = placeIn(keys, this.#given);
    if (place === null) return null;
    const [size] = await this.#ask(store, "STORE_MULTI_GET", [[`${place}world_size`]]);
    const worldSize = Number(decoder.decode(size));
    const missing = [];
    for (let rank = 0; rank < worldSize && missing.length < MAX_RANKS; rank += 1) {
      if (!keys.has(`${place}${rank}`)) missing.push(rank);
    }
    if (missing.length === 0) return null;
    const has = missing.length === 1 ? "has" : "have";
    const group = place.split("/").at(-3);
    return `group '${group}': ${rankNames(missing)} of ${worldSize} ${has}`;
  }

  #ask(store, key, args) {
    const { cancellation, cancel, invokeAsync } = this.#native;
    const number = cancellation();
    const answer = invokeAsync(store, key, args, null, number);
    const timer = setTimeout(() => cancel(number), STORE_LIMIT_MS);
    return answer.finally(() => clearTimeout(timer));
  }
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

/** The names of methods that join a group. */
export const JOINS = new Set(Object.keys(PLACES));

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
