// Which lines of the program have led to a call, for those who ask where ranks that disagree have
// called. Knows nothing of who asks.

const MOST = 32;

/** This package's own folder: `file:///.../js/`. */
const OWN = new URL("../", import.meta.url).href;

/** A line of a stack, as V8 writes it: `at step (file:///train.mjs:40:5)`. */
const LINE = /^\s*at (?:async )?(?:(.*) \()?((?:file:\/\/)?\/.*|[A-Za-z]:\\.*):(\d+):\d+\)?$/;

/** Adds function, file and line of each to `list`, the innermost first. */
export function callFrames(list) {
  for (const line of stack().split("\n")) {
    const [, name = "<anonymous>", place, number] = LINE.exec(line) ?? [];
    if (place === undefined || place.startsWith(OWN)) continue;
    list.push(name, pathOf(place), Number(number));
    if (list.length >= 3 * MOST) return;
  }
}

/** The stack of this thread, of more lines than programs usually want. */
function stack() {
  const { stackTraceLimit } = Error;
  try {
    Error.stackTraceLimit = 2 * MOST;
    return String(new Error().stack);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function pathOf(place) {
  return place.startsWith("file://") ? decodeURIComponent(new URL(place).pathname) : place;
}
