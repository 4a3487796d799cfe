// The groups of this realm: who their ranks are, and in which store those are asked. Knows nothing
// of what they call.

import { called } from "./called.js";
import { invoke } from "../runtime/calls.js";
import { HANDLE } from "../runtime/handles.js";
import { groupTitle, withName } from "./words.js";

const RANK = { key: "PROCESS_GROUP_RANK", name: "rank", required: 0 };
const NAME = { key: "PROCESS_GROUP_GROUP_NAME", required: 0 };
const DESCRIPTION = { key: "PROCESS_GROUP_GROUP_DESC", required: 0 };
const STORE = { key: "PROCESS_GROUP_GET_GROUP_STORE", name: "getGroupStore", required: 0 };
const RANKS = {
  key: "DISTRIBUTED_GET_PROCESS_GROUP_RANKS",
  name: "getProcessGroupRanks",
  required: 0,
  group: 0,
  groupName: "group",
};

/** A group, as long as its object or its store is known to live. */
class KnownGroup {
  #object;

  name = "";
  /** What its user calls it. */
  title = "";
  /** Global ranks of the members, by group rank, and that of this rank. */
  members = [];
  rank = 0;
  /** Where ranks of a group are asked that was not made out of another; null for others. */
  store = null;
  /** The last question of each sort that this rank has answered. */
  answered = { asked: 0, report: 0 };

  constructor(object, isRoot) {
    this.id = object[HANDLE].id;
    this.isRoot = isRoot;
    this.#object = new WeakRef(object);
    this.refresh();
  }

  /** Another object stands for it: the former one may be gone. */
  adopt(object) {
    this.#object = new WeakRef(object);
  }

  get isAlive() {
    return this.#object.deref() !== undefined;
  }

  /** Its title, with the name where other groups of this realm are called the same. */
  get shown() {
    const isTwin = (other) => other.name !== this.name && other.title === this.title;
    const isShared = this.title !== this.name && [...known.values()].some(isTwin);
    return isShared ? withName(this.title, this.name) : this.title;
  }

  /** The store in which its ranks meet for groups that are made out of it; null: it is gone,
   * or has none. */
  storeOfCalls() {
    const object = this.#object.deref();
    if (this.store !== null || object === undefined) return this.store;
    try {
      return invoke(STORE, object, []);
    } catch {
      // The call in which that matters says what is wrong with the group.
      return null;
    }
  }

  /** Learns who its members are now, as they may be replaced. */
  refresh() {
    const object = this.#object.deref();
    if (object === undefined) return;
    try {
      this.name = invoke(NAME, object, []);
      this.title = groupTitle(this.name, invoke(DESCRIPTION, object, []));
      this.members = invoke(RANKS, null, [object]);
      this.rank = this.members[invoke(RANK, object, [])] ?? 0;
    } catch {
      // It has no members yet, or was left.
      this.members = [];
    }
  }

  /** Takes the store that its members have now. */
  takeStore() {
    const object = this.#object.deref();
    if (!this.isRoot || object === undefined) return;
    this.refresh();
    this.answered = { asked: 0, report: 0 };
    this.store = this.members.length > 1 ? invoke(STORE, object, []) : null;
  }
}

/** By their numbers. */
const known = new Map();
/** The numbers of those that were not made out of others. */
const roots = new Set();

/** A group of this number that is made now was not made out of another. */
export function noteRoot(id) {
  roots.add(id);
}

/** A group has an object now. */
export function noteGroup(object) {
  const { id } = object[HANDLE];
  if (known.has(id)) return known.get(id).adopt(object);
  const group = new KnownGroup(object, roots.has(id));
  known.set(group.id, group);
  return group.takeStore();
}

/** A group was left, or is gone. */
export function forgetGroup(id) {
  known.delete(id);
  roots.delete(id);
  called.forget(id);
}

/** All that are not gone. */
export function allGroups() {
  for (const group of [...known.values()]) {
    // The object of a group with a store may be gone: functions need none.
    if (!group.isAlive && group.store === null) forgetGroup(group.id);
  }
  return [...known.values()];
}

/** Those in whose stores ranks are asked. */
export function rootGroups() {
  return allGroups().filter((group) => group.store !== null);
}

/** The group of this number; undefined if it is none of these. */
export function groupOf(id) {
  return known.get(id);
}
