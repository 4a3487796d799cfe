// What this realm has called: the last collective of each group, and calls that consist of several
// operations and have not ended. Is told of every operation, so it must cost next to nothing. Knows
// nothing of who asks.

/** What takes part in no order of collectives. */
const OTHERS = new Set([
  ...["send", "recv", "isend", "irecv", "recv_anysource", "sendrecv"],
  ...["tensor_register", "tensor_deregister", "put", "get", "accumulate", "fetch_and_add"],
  ...["compare_and_swap", "signal", "wait_signal", "flush", "fence"],
]);

/** Calls that wait for other ranks, and how many collectives of their group each of them runs. */
const COMPOSED = new Map(Object.entries({
  DISTRIBUTED_ALL_GATHER_OBJECT: 2,
  DISTRIBUTED_GATHER_OBJECT: 2,
  DISTRIBUTED_BROADCAST_OBJECT_LIST: 2,
  DISTRIBUTED_SCATTER_OBJECT_LIST: 2,
  DISTRIBUTED_ALL_REDUCE_SPARSE: 3,
  PROCESS_GROUP_ALLREDUCE_SPARSE: 3,
  PROCESS_GROUP_CREATE_CART: 2,
  PROCESS_GROUP_CREATE_DIST_GRAPH_ADJACENT: 2,
  DISTRIBUTED_SEND_OBJECT_LIST: 0,
  DISTRIBUTED_RECV_OBJECT_LIST: 0,
}));

/** What the keys of the native half begin with: the class, or the module of functions. */
const PREFIXES = /^(DISTRIBUTED|PROCESS_GROUP|TOPOLOGY|WINDOW)_(PREPARE_)?/;

class Called {
  /** When the watch looked last: the clock is not read for each operation. */
  now = 0;
  /** Composed calls that have not ended. */
  composed = new Set();
  #names = new Map();
  #last = new Map();
  #defaultGroup = 0;
  /** The group that was called last, as its number was given, and its entry. */
  #group = -1;
  #entry = null;

  /** What the core calls a method, by its key; null if it is not a collective. */
  collective(key) {
    let name = this.#names.get(key);
    if (name === undefined) {
      name = nameOf(key);
      if (OTHERS.has(name)) name = null;
      this.#names.set(key, name);
    }
    return name;
  }

  /** The number of the default group, which calls of functions are given as 0. */
  set defaultGroup(number) {
    this.#defaultGroup = number;
    this.#group = -1;
  }

  /** A collective of this title and number was called in a group. */
  note(group, title, sequence) {
    if (group !== this.#group) this.#turnTo(group);
    const entry = this.#entry;
    entry.title = title;
    entry.sequence = sequence;
    entry.at = this.now;
  }

  /** The last collective of a group; none if it has called none. */
  last(group) {
    return this.#last.get(group) ?? null;
  }

  /** Whether calls of this method are composed. */
  isComposed(key) {
    return COMPOSED.has(key);
  }

  /** A call of the native half begins, which the user may call otherwise; gives what notes its end,
   * or null if it is no composed one. */
  begin(key, call, userName) {
    const parts = COMPOSED.get(key);
    const [group] = parts === undefined ? [] : call.groups;
    if (group === undefined) return null;
    const first = (this.last(group)?.sequence ?? 0) + 1;
    const title = userName === null ? nameOf(key) : `${nameOf(key)} '${userName}'`;
    const peer = parts === 0 ? (call.peer() ?? null) : null;
    const composed = { group, title, first, parts, peer, began: performance.now() };
    this.composed.add(composed);
    if (parts > 0) this.note(group, title, first + parts - 1);
    return () => this.composed.delete(composed);
  }

  /** A group is gone, or has other members, whose numbers begin anew. */
  forget(group) {
    this.#last.delete(group);
    this.#group = -1;
  }

  #turnTo(group) {
    const number = group === 0 ? this.#defaultGroup : group;
    let entry = this.#last.get(number);
    if (entry === undefined) {
      entry = { title: "", sequence: 0, at: 0 };
      this.#last.set(number, entry);
    }
    this.#group = group;
    this.#entry = entry;
  }
}

/** The one of this realm. */
export const called = new Called();

/** What the core calls the method with this key. */
export function nameOf(key) {
  return key.replace(PREFIXES, "").toLowerCase();
}
