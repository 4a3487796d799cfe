// What a store's host and its clients say to each other over a port, and how each learns that the
// other's Worker or page has ended. Knows nothing of stores or links.

/** The kinds of messages, which are lists: a kind, and what it is about. */
export const Kind = {
  /** From the host: the client's number, the lock that it is to hold, and the host's own. */
  WELCOME: 0,
  /** From a client: it holds its lock. */
  HELD: 1,
  /** From a client: the number of a request, the method, its arguments and the limit, ms. */
  ASK: 2,
  /** From the host: the number of a request, and what it gave, or its error. */
  ANSWER: 3,
  FAILED: 4,
  /** From a client: the number of the member that it wants to be connected to. */
  OPEN: 5,
  /** From the host: the number of a member, and the port, the memory and the side of the link. */
  LINK: 6,
  /** From the host: the number of a member that has ended. */
  GONE: 7,
};

/** The number of the host among the members. */
export const HOST = 1;

/** Why a member is lost. */
export const ENDED = "its Worker was terminated, or its page was closed";

/** Why two ranks that use the same store do not reach each other, while others are elsewhere. */
export const SHARED = "each rank needs a port of its own: call openPort()";

/** A name that no other lock has. */
export function lockName() {
  const words = crypto.getRandomValues(new Uint32Array(4));
  return `polyrank-${[...words].map((word) => word.toString(36)).join("-")}`;
}

/** Holds a lock until this Worker or page ends, which browsers tell nobody else; ends when it is
 * held, or cannot be. */
export function holdLock(name) {
  return new Promise((resolve) => {
    const hold = () => {
      resolve();
      return new Promise(() => {});
    };
    // Pages without a secure origin have no locks.
    if (globalThis.navigator?.locks === undefined) resolve();
    else navigator.locks.request(name, hold).catch(resolve);
  });
}

/** Calls `ended` once, when who holds this lock has ended, or who has the other end of `port`. */
export function watchEnd(port, name, ended) {
  let isOver = false;
  const tell = () => {
    if (!isOver) ended();
    isOver = true;
  };
  // Node tells of ports, as browsers will.
  port.addEventListener("close", tell);
  globalThis.navigator?.locks?.request(name, tell).catch(() => {});
}
