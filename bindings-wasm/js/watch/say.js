// Where it is said that somebody waits: the console, or a logger of the program. Knows nothing of
// what is said.

/** What lines are handed to; null: the console. */
let logger = null;

/** Hands what is said from now on to `taker`; null: to the console. */
export function sayTo(taker) {
  logger = taker;
}

/** Warns. */
export function say(text) {
  if (logger === null || !logger(text)) console.warn(`polyrank: ${text}`);
}
