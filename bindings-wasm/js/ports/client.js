// The side of a store that asks the host of its keys, and is connected to other members by it.
// Knows nothing of what goes over the links.

import { DistNetworkError, asError } from "../generated/errors.js";
import { isPlain } from "../runtime/options.js";
import { Link } from "./pipes.js";
import { ENDED, HOST, Kind, SHARED, holdLock, watchEnd } from "./messages.js";

/** How long what a member said before its end may take to come, behind the news of that, ms. */
const LAST_WORDS_MS = 50;

/** What the host says first over `port`. */
export function welcomed(port, timeout) {
  return new Promise((resolve, reject) => {
    const refuse = () => {
      port.close();
      const what = "openPort() of a MessagePortStore gives such ports, each for one rank";
      reject(new DistNetworkError(
        `no MessagePortStore answered at the port within ${timeout} ms: ${what}, and the page or ` +
          "Worker that it was called in must still be there",
        {},
      ));
    };
    const timer = timeout > 0 ? setTimeout(refuse, Math.min(timeout, 2 ** 31 - 1)) : undefined;
    port.onmessage = ({ data: [kind, ...about] }) => {
      if (kind !== Kind.WELCOME) return;
      clearTimeout(timer);
      resolve(about);
    };
  });
}

export class StoreClient {
  #port;
  #links = new Map();
  /** Requests without an answer, by their numbers. */
  #asked = new Map();
  #last = 0;
  #isOver = false;

  constructor(port, [number, lock, hostLock]) {
    this.number = number;
    this.#port = port;
    port.onmessage = ({ data }) => this.#came(data);
    port.unref?.();
    holdLock(lock).then(() => port.postMessage([Kind.HELD]));
    watchEnd(port, hostLock, () => this.#lose());
  }

  /** What the host's store gives for a method of the store. */
  ask(method, given, timeout) {
    const options = given.at(-1);
    const signal = isPlain(options) ? options.signal : undefined;
    // Signals do not travel.
    const sent = signal === undefined ? given : given.with(-1, { ...options, signal: undefined });
    return new Promise((resolve, reject) => {
      if (this.#isOver) return reject(this.#hostEnded());
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#last += 1;
      this.#port.postMessage([Kind.ASK, this.#last, method, sent, timeout]);
      this.#asked.set(this.#last, { resolve, reject });
      return this.#port.ref?.();
    });
  }

  /** The way to another member. */
  linkTo(peer) {
    let link = this.#links.get(peer);
    if (link === undefined) {
      link = new Link();
      this.#links.set(peer, link);
      if (peer === this.number) link.lose(SHARED);
      else if (this.#isOver) link.lose(this.#hostEnded().message);
      else this.#port.postMessage([Kind.OPEN, peer]);
    }
    return link;
  }

  #came([kind, about, ...more]) {
    if (kind === Kind.LINK) this.linkTo(about).connect(...more);
    if (kind === Kind.GONE) this.#memberEnded(about);
    const asked = this.#asked.get(about);
    if ((kind !== Kind.ANSWER && kind !== Kind.FAILED) || asked === undefined) return;
    this.#asked.delete(about);
    if (this.#asked.size === 0) this.#port.unref?.();
    if (kind === Kind.ANSWER) asked.resolve(more[0]);
    else asked.reject(asError(more[0]));
  }

  #memberEnded(number) {
    const link = this.#links.get(number);
    if (link !== undefined) setTimeout(() => link.lose(ENDED), LAST_WORDS_MS);
  }

  #hostEnded() {
    const what = "the page or Worker that made the MessagePortStore has ended";
    return new DistNetworkError(`${what}: nobody has its keys any more`, {});
  }

  #lose() {
    this.#isOver = true;
    for (const { reject } of this.#asked.values()) reject(this.#hostEnded());
    this.#asked.clear();
    // It is a member, too; those that are connected to others still reach them.
    this.#memberEnded(HOST);
    for (const link of this.#links.values()) {
      if (!link.isConnected) link.lose(this.#hostEnded().message);
    }
  }
}
