// The native half's operations and calls as objects: the addon has functions for them, which are
// cheaper to call than methods of its own objects. Knows nothing of what they are for.

/** `addon` with `prepare` and `resolve` giving objects. */
export function withWorks(addon) {
  const NativeWork = worksOf(addon);
  const NativeCall = callsOf(addon);
  return {
    ...addon,
    prepare: (...call) => new NativeWork(addon.prepare(...call)),
    resolve: (...call) => new NativeCall(addon.resolve(...call)),
  };
}

function worksOf(addon) {
  return class NativeWork {
    #work;

    constructor(work) {
      this.#work = work;
      this.id = addon.workId(work);
    }

    get name() {
      return addon.workName(this.#work);
    }

    get sequence() {
      return addon.workSequence(this.#work);
    }

    get timeoutMs() {
      return addon.workTimeoutMs(this.#work);
    }

    get group() {
      return addon.workGroup(this.#work);
    }

    get outputs() {
      return addon.workOutputs(this.#work);
    }

    get issued() {
      return addon.workIssued(this.#work);
    }

    copyIn(tensors, budget) {
      return addon.workCopyIn(this.#work, tensors, budget);
    }

    issue() {
      addon.workIssue(this.#work);
    }

    giveUp(why) {
      addon.workGiveUp(this.#work, why);
    }

    isDone() {
      return addon.workIsDone(this.#work);
    }

    watch() {
      addon.workWatch(this.#work);
    }

    error() {
      return addon.workError(this.#work);
    }

    copyOut(tensors, budget) {
      return addon.workCopyOut(this.#work, tensors, budget);
    }

    sourceRank() {
      return addon.workSourceRank(this.#work);
    }
  };
}

function callsOf(addon) {
  return class NativeCall {
    #call;

    constructor(call) {
      this.#call = call;
      this.groups = addon.callGroups(call);
    }

    peer() {
      return addon.callPeer(this.#call);
    }

    begin(cancel) {
      return addon.callBegin(this.#call, cancel);
    }
  };
}
