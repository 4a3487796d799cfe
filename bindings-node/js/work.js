// The native half's operations and calls as objects: the addon has functions for them, which are
// cheaper to call than methods of its own objects. Knows nothing of what they are for.

/** The exports of `polyrank.node`. */
let addon;

/** `given`, the addon, with objects for operations and calls, as `interface Native` has them. */
export function withWorks(given) {
  addon = given;
  return {
    ...addon,
    prepare(group, method, args, keywords, tensors, infos, maxEagerBytes) {
      const { prepare } = addon;
      return new NativeWork(prepare(group, method, args, keywords, tensors, infos, maxEagerBytes));
    },
    prepareTogether(calls, maxEagerBytes) {
      const { prepareTogether } = addon;
      return new NativeWork(prepareTogether(calls, maxEagerBytes));
    },
    runShort(...call) {
      const outcome = addon.runShort(...call);
      return typeof outcome === "object" && outcome !== null ? new NativeWork(outcome) : outcome;
    },
    invoke: (...call) => addon.invoke(call),
    invokeAsync(self, method, args, keywords, cancel) {
      return addon.invokeAsync([self, method, args, keywords], cancel);
    },
    resolve: (...call) => new NativeCall(addon.resolve(call)),
  };
}

class NativeWork {
  #work;
  /** Whether it went well and is over: the addon need not be called any more. */
  #isOver;

  constructor(work) {
    this.#work = work;
    const id = addon.workId(work);
    this.#isOver = id < 0;
    this.id = Math.abs(id);
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

  get groupName() {
    return addon.workGroupName(this.#work);
  }

  get outputs() {
    return addon.workOutputs(this.#work);
  }

  get inputs() {
    return addon.workInputs(this.#work);
  }

  facts() {
    return addon.workFacts(this.#work);
  }

  checkFinite(tensors, allowInfinity) {
    addon.workCheckFinite(this.#work, tensors, allowInfinity);
  }

  refuse(why) {
    addon.workRefuse(this.#work, why);
  }

  get issued() {
    return this.#isOver || addon.workIssued(this.#work);
  }

  get bytesCopiedIn() {
    return addon.workBytesCopiedIn(this.#work);
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
    return this.#isOver || addon.workIsDone(this.#work);
  }

  watch() {
    addon.workWatch(this.#work);
  }

  error() {
    return this.#isOver ? null : addon.workError(this.#work);
  }

  copyOut(tensors, budget) {
    return this.#isOver ? 0 : addon.workCopyOut(this.#work, tensors, budget);
  }

  sourceRank() {
    return addon.workSourceRank(this.#work);
  }

  compressionError() {
    return addon.workCompressionError(this.#work);
  }
}

class NativeCall {
  #call;

  constructor(call) {
    this.#call = call;
    this.groups = addon.callGroups(call);
  }

  peer() {
    return addon.callPeer(this.#call);
  }

  rank() {
    return addon.callRank(this.#call);
  }

  refuse(why) {
    addon.callRefuse(this.#call, why);
  }

  abortGroups() {
    addon.callAbortGroups(this.#call);
  }

  begin(cancel) {
    return addon.callBegin(this.#call, cancel);
  }
}
