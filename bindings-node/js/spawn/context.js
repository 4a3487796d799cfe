// The ranks that `spawn` started: waits for all of them, and ends the others when one fails. Knows
// not whether they are processes or Workers.

import { DURATION, expectAtMost, optionsOf } from "../runtime/options.js";
import { ProcessExitedError, ProcessRaisedError } from "./errors.js";

/** How long the others may take to end when one has failed, after SIGTERM, ms. */
const GRACE_MS = 30_000;

/** The longest time that a timer takes, ms. */
const MAX_MS = 2 ** 31 - 1;

/** How Node ends where nothing is left that could settle what is awaited. */
const UNSETTLED = 13;

const STOP_OPTIONS = { gracePeriod: DURATION };
const JOIN_OPTIONS = { timeout: DURATION, ...STOP_OPTIONS };

export class ProcessContext {
  #ranks;
  /** Settles when all have ended well, or one has not. */
  #firstFailure = null;
  #error = null;

  constructor(ranks) {
    this.#ranks = ranks;
  }

  /** In the order of their ranks. */
  get processes() {
    return this.#ranks.map(({ handle }) => handle);
  }

  pids() {
    return this.#ranks.map(({ pid }) => pid);
  }

  async join(options) {
    expectAtMost(1, "join", arguments.length);
    const { timeout, gracePeriod } = optionsOf("join", options, JOIN_OPTIONS);
    this.#firstFailure ??= firstFailureOf(this.#ranks);
    const first = await this.#awaited(within(timeout, this.#firstFailure));
    if (first === undefined) return false;
    if (first === null) return true;
    await this.stop({ gracePeriod });
    this.#error ??= errorOf(this.#cause(first));
    throw this.#error;
  }

  async stop(options) {
    expectAtMost(1, "stop", arguments.length);
    const { gracePeriod } = optionsOf("stop", options, STOP_OPTIONS);
    const running = () => this.#ranks.filter(({ end }) => end === null);
    for (const rank of running()) rank.terminate();
    const ended = Promise.all(this.#ranks.map(({ over }) => over));
    if ((await this.#awaited(within(gracePeriod ?? GRACE_MS, ended))) === undefined) {
      for (const rank of running()) rank.kill();
      await this.#awaited(ended);
    }
  }

  /** What the promise gives; the program waits meanwhile, although ranks may be daemons. */
  async #awaited(promise) {
    for (const rank of this.#ranks) rank.hold();
    return promise.finally(() => {
      for (const rank of this.#ranks) rank.release();
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

/** Null when all have ended well; else one that has not. */
function firstFailureOf(ranks) {
  return new Promise((resolve) => {
    const all = ranks.map((rank) => rank.over.then(() => hasFailed(rank) && resolve(rank)));
    Promise.all(all).then(() => resolve(null));
  });
}

function hasFailed({ end }) {
  return end !== null && (end.code !== 0 || end.signal !== null);
}

/** What the promise gives; undefined after this time, ms. */
async function within(limit, promise) {
  if (limit === undefined || limit === null) return promise;
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, Math.max(0, Math.min(Number(limit), MAX_MS)));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Why this one failed. */
function errorOf({ rank, pid, title, told, end }) {
  const who = { rank, pid };
  if (told?.text) {
    return new ProcessRaisedError(`rank ${rank} (${title}) raised:\n${told.text}`, who);
  }
  const { code, signal } = end;
  let how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
  if (code === UNSETTLED) how += ": its function waits for what nothing can settle any more";
  const facts = { ...who, exitCode: code, signal };
  return new ProcessExitedError(`rank ${rank} (${title}) ${how}`, facts);
}
