// polyrank for browsers: loads the native half, which is WebAssembly, and exports the whole API.
// The module is ready when its import is.

import { install } from "./runtime/native.js";
import { native } from "./load.js";
import { watched } from "./watch/watch.js";

// A message to oneself is the shortest way into the next turn of the event loop: timers are held
// back when they are nested, and in tabs that nobody looks at.
const channel = new MessageChannel();
const due = [];
channel.port1.onmessage = () => {
  due.shift()?.();
  // Node counts an open port as work to wait for; only a message on its way is.
  if (due.length === 0) channel.port1.unref?.();
};
channel.port1.unref?.();

install(watched(native), {
  // Memory of WebAssembly has addresses of 32 bits, with a sign.
  maxMemoryBytes: 2 ** 31 - 1,
  maxArrayBytes: 2 ** 31 - 1,
  nextTurn(callback) {
    due.push(callback);
    channel.port1.ref?.();
    channel.port2.postMessage(null);
  },
  warn: (text) => console.warn(text),
  currentGroup: variable(),
  currentMesh: variable(),
  commName: variable(),
  // Without developer tools, it goes on.
  hold(rank, site) {
    console.warn(`rank ${rank} is at its breakpoint, ${site}`);
    debugger;
  },
});

/** What has a value while a callback runs, until it awaits. */
function variable() {
  const values = [];
  return {
    run(value, callback) {
      values.push(value);
      try {
        return callback();
      } finally {
        values.pop();
      }
    },
    get: () => values.at(-1),
  };
}

export * from "./generated/index.js";
