// The ranks that `spawn` started: waits for all of them, and ends the others when one fails. Knows
// not whether they are processes or Workers.

import { ProcessExitedError, ProcessRaisedError } from "./errors.js";

/** How long the others may take to end when one has failed, after SIGTERM, ms. */
const GRACE_MS = 30_000;

/** The longest time that a timer takes, ms. */
const MAX_MS = 2 ** 31 - 1;

export class ProcessContext {
  #ranks;
  /** It serves as long as there is a rank, also where nobody keeps the context. */
  #store;
  #failure = null;

  constructor(ranks, store) {
    this.#ranks = ranks;
    this.#store = store;
  }

  /** In the order of their ranks. */
  get processes() {
    return this.#ranks.map(({ handle }) => handle);
  }

  pids() {
    return this.#ranks.map(({ pid }) => pid);
  }

  async join({ timeout = null, gracePeriod = GRACE_MS } = {}) {
    const first = await within(timeout, this.#allOrFirstFailure());
    if (first === undefined) return false;
    if (first !== null) {
      await this.stop({ gracePeriod });
      this.#failure ??= failureOf(this.#cause(first));
      throw this.#failure;
    }
    this.#store = null;
    return true;
  }

  async stop({ gracePeriod = GRACE_MS } = {}) {
    const running = this.#ranks.filter(({ end }) => end === null);
    for (const rank of running) rank.terminate();
    const ended = Promise.all(this.#ranks.map(({ over }) => over));
    if ((await within(gracePeriod, ended)) === undefined) {
      for (const rank of running) rank.kill();
      await ended;
    }
  }

  /** Null when all have ended well; else one that has not. */
  #allOrFirstFailure() {
    const failed = this.#ranks.find(hasFailed);
    if (failed !== undefined) return Promise.resolve(failed);
    return new Promise((resolve) => {
      const all = this.#ranks.map((rank) => {
        return rank.over.then(() => hasFailed(rank) && resolve(rank));
      });
      Promise.all(all).then(() => resolve(null));
    });
  }

  /** The one that failed first: others may have failed as they were left alone. What a signal has
   * ended could not say when. */
  #cause(seen) {
    const failed = this.#ranks.filter((rank) => hasFailed(rank) && !rank.wasStopped());
    const when = ({ told }) => told?.when ?? 0n;
    return failed.reduce((first, rank) => (when(rank) < when(first) ? rank : first), seen);
  }
}

function hasFailed({ end }) {
  return end !== null && (end.code !== 0 || end.signal !== null);
}

/** What the promise gives; undefined after this time, ms. */
async function within(limit, promise) {
  if (limit === null) return promise;
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, Math.min(limit, MAX_MS));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Why this one failed. */
function failureOf({ rank, pid, title, told, end }) {
  const who = { rank, pid };
  if (told?.text) {
    return new ProcessRaisedError(`rank ${rank} (${title}) raised:\n${told.text}`, who);
  }
  const { code, signal } = end;
  const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
  const facts = { ...who, exitCode: code, signal };
  return new ProcessExitedError(`rank ${rank} (${title}) ${how}`, facts);
}
