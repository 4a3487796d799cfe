// The value for a process group that this process is not a member of. Knows nothing of groups.

/** What `newGroup` returns on a rank that is not in the new group; it has one instance. */
export class NonGroupMember {
  constructor(made) {
    if (made !== INTERNAL) throw new TypeError("NON_GROUP_MEMBER is the only NonGroupMember");
    Object.freeze(this);
  }

  get [Symbol.toStringTag]() {
    return "NonGroupMember";
  }
}

const INTERNAL = Symbol("polyrank.nonGroupMember");

/** The only instance: as a group it makes functions do nothing. */
export const NON_GROUP_MEMBER = new NonGroupMember(INTERNAL);
