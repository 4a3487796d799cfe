// How a Worker that waits looks into the rings of its links before it gives its turn back: being
// woken takes longer than most small operations. It learns whether that pays. Knows nothing of what
// is in the rings.

import { platform } from "../runtime/native.js";
import { native } from "../load.js";

/** How long a Worker looks after something came, or after it began, ms. */
const LIMIT_MS = 0.1;
/** For so long the event loop may get no turn, ms: messages and timers have to be served, too. */
const MAX_MS = 4;
/** So many looks in vain, one after the other, show that it does not pay: the other is late. */
const MISSES = 4;
/** So many times it is not tried then, and each time twice as many, up to a limit. */
const [MIN_SKIPS, MAX_SKIPS] = [8, 256];
/** Looks between two readings of the clock. */
const LOOKS = 64;

const links = new Set();
/** Whether others must wake this Worker only after its next turn. */
let isActive = false;
let lastTurn = 0;
let missed = 0;
let skips = 0;
let nextSkips = MIN_SKIPS;

// A page's own thread has to draw. A processor that ranks share is better given to them.
const isWorker = typeof document === "undefined";
const processors = globalThis.navigator?.hardwareConcurrency ?? 2;

const channel = new MessageChannel();
channel.port1.onmessage = settle;
channel.port1.unref?.();

/** Moves everything that can be moved. */
export const turn = () => native.turn();

export const polling = {
  get isActive() {
    return isActive;
  },

  /** Looks at this link, too. */
  add(link) {
    links.add(link);
    if (isWorker) platform.awaited = poll;
  },

  delete(link) {
    links.delete(link);
  },
};

/** Looks until the operation is over, but not for long. */
function poll(operation) {
  if (operation.state !== "running" || links.size === 0 || links.size >= processors) return;
  if (skips > 0) {
    skips -= 1;
    return;
  }
  let now = performance.now();
  if (!isActive) begin(now);
  let until = now + LIMIT_MS;
  while (now < Math.min(until, lastTurn + MAX_MS)) {
    if (look(operation)) until = performance.now() + LIMIT_MS;
    if (operation.state === "ended") {
      [missed, nextSkips] = [0, MIN_SKIPS];
      return;
    }
    now = performance.now();
  }
  if (now >= until) miss();
  settle();
}

/** Looks some times; whether there was something to do, which is done. */
function look(operation) {
  for (let looks = 0; looks < LOOKS; looks += 1) {
    for (const link of links) {
      if (!link.hasNews) continue;
      turn();
      operation.poll();
      return true;
    }
  }
  return false;
}

function miss() {
  missed += 1;
  if (missed < MISSES) return;
  [missed, skips] = [0, nextSkips];
  nextSkips = Math.min(2 * nextSkips, MAX_SKIPS);
}

function begin(now) {
  isActive = true;
  lastTurn = now;
  links.forEach((link) => link.watch());
  // Once the Worker has given its turn back, it has to be woken.
  channel.port2.postMessage(null);
}

function settle() {
  if (!isActive) return;
  isActive = false;
  links.forEach((link) => link.settle());
  turn();
}
