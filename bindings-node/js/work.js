// The native half's operations and calls as objects: the addon has functions for them, which are
// cheaper to call than methods of its own objects. Knows nothing of what they are for.

import { NativeWork, installWorks } from "./runtime/native_works.js";

/** The exports of `polyrank.node`. */
let addon;

/** `given`, the addon, with objects for operations and calls, as `interface Native` has them. */
export function withWorks(given) {
  addon = given;
  installWorks(addon);
  return {
    ...addon,
    prepare(group, method, args, keywords, tensors, infos, maxEagerBytes) {
      const { prepare } = addon;
      return workOf(prepare(group, method, args, keywords, tensors, infos, maxEagerBytes));
    },
    prepareTogether(calls, maxEagerBytes) {
      const { prepareTogether } = addon;
      return workOf(prepareTogether(calls, maxEagerBytes));
    },
    runShort(...call) {
      const outcome = addon.runShort(...call);
      return typeof outcome === "object" && outcome !== null ? workOf(outcome) : outcome;
    },
    runPrepared(prepared, first, second, maxCopied) {
      const outcome = addon.runPrepared(prepared, first, second, maxCopied);
      return typeof outcome === "object" && outcome !== null ? workOf(outcome) : outcome;
    },
    invoke: (...call) => addon.invoke(call),
    invokeAsync(self, method, args, keywords, cancel) {
      return addon.invokeAsync([self, method, args, keywords], cancel);
    },
    resolve: (...call) => new NativeCall(addon.resolve(call)),
  };
}

function workOf(work) {
  const id = addon.workId(work);
  return new NativeWork(work, Math.abs(id), { isOver: id < 0 });
}

class NativeCall {
  #call;

  constructor(call) {
    this.#call = call;
    this.groups = addon.callGroups(call);
  }

  get isConcurrent() {
    return addon.callIsConcurrent(this.#call);
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
