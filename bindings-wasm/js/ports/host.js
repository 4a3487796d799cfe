// The side of a store that has its keys: answers its clients, connects its members with each other,
// and tells them when one has ended. Knows nothing of what goes over their links.

import { HashStore } from "../generated/index.js";
import { LINK_MEMORY_BYTES, Link } from "./pipes.js";
import { ENDED, HOST, Kind, SHARED, holdLock, lockName, watchEnd } from "./messages.js";

/** Whether Workers of this page can share memory with it. */
const canShare =
  globalThis.crossOriginIsolated !== false && typeof SharedArrayBuffer === "function";

export class StoreHost {
  number = HOST;
  #store = new HashStore();
  /** The clients that have not ended, by their numbers: their ports. */
  #clients = new Map();
  #last = HOST;
  /** The links of this realm, by the numbers of the others. */
  #links = new Map();
  /** Pairs of members that have a link. */
  #pairs = new Set();
  #lock = lockName();
  #held = holdLock(this.#lock);

  /** A port for one more member. */
  openPort() {
    this.#last += 1;
    const number = this.#last;
    const { port1, port2 } = new MessageChannel();
    const lock = lockName();
    // Each client has a limit of its own.
    const store = this.#store.clone();
    port1.onmessage = ({ data }) => this.#came(number, data, store, lock);
    port1.unref?.();
    this.#clients.set(number, port1);
    this.#held.then(() => port1.postMessage([Kind.WELCOME, number, lock, this.#lock]));
    return port2;
  }

  /** What a method of the store gives here. */
  ask(method, given) {
    return this.#store[method](...given);
  }

  /** The way to another member. */
  linkTo(peer) {
    let link = this.#links.get(peer);
    if (link === undefined) {
      link = new Link();
      this.#links.set(peer, link);
      if (peer === HOST) link.lose(SHARED);
      else this.#join(HOST, peer);
    }
    return link;
  }

  #came(number, [kind, ...about], store, lock) {
    if (!this.#clients.has(number)) return;
    if (kind === Kind.HELD) watchEnd(this.#clients.get(number), lock, () => this.#ended(number));
    if (kind === Kind.OPEN) this.#join(number, about[0]);
    if (kind === Kind.ASK) this.#answer(this.#clients.get(number), store, about);
  }

  async #answer(port, cloned, [id, method, given, timeout]) {
    try {
      const store = await cloned;
      store.setTimeout(timeout);
      port.postMessage([Kind.ANSWER, id, await store[method](...given)]);
    } catch (error) {
      const fields = Object.fromEntries(Object.entries(error));
      port.postMessage([Kind.FAILED, id, { kind: error.kind, message: error.message, fields }]);
    }
  }

  /** Connects two members, unless they are, or one of them has ended. */
  #join(one, other) {
    const pair = `${Math.min(one, other)} ${Math.max(one, other)}`;
    if (!this.#isHere(other)) return this.#tell(one, [Kind.GONE, other]);
    if (this.#pairs.has(pair)) return undefined;
    this.#pairs.add(pair);
    const { port1, port2 } = new MessageChannel();
    const memory = canShare ? new SharedArrayBuffer(LINK_MEMORY_BYTES) : null;
    this.#tell(one, [Kind.LINK, other, port1, memory, true], [port1]);
    return this.#tell(other, [Kind.LINK, one, port2, memory, false], [port2]);
  }

  #isHere(number) {
    return number === HOST || this.#clients.has(number);
  }

  /** Tells a member something, which may be the host itself. */
  #tell(number, message, transfer = []) {
    if (number !== HOST) return this.#clients.get(number)?.postMessage(message, transfer);
    const [kind, peer, ...link] = message;
    if (kind === Kind.GONE) return this.linkTo(peer).lose(ENDED);
    return this.linkTo(peer).connect(...link);
  }

  #ended(number) {
    this.#clients.get(number).close();
    this.#clients.delete(number);
    for (const port of this.#clients.values()) port.postMessage([Kind.GONE, number]);
    this.#links.get(number)?.lose(ENDED);
    // A number is given once, so that nobody asks for these again.
    const others = [...this.#pairs].filter((pair) => pair.split(" ").includes(String(number)));
    for (const pair of others) this.#pairs.delete(pair);
  }
}
