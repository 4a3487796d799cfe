// polyrank for Node: loads the native half and exports the whole API.

import { AsyncLocalStorage } from "node:async_hooks";
import { constants } from "node:buffer";
import inspector from "node:inspector";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { debuglog } from "node:util";

import { callFrames } from "./runtime/call_frames.js";
import "./runtime/inspect.js";
import { install, native } from "./runtime/native.js";
import { withWorks } from "./work.js";


install(withWorks(createRequire(import.meta.url)("../polyrank.node")), {
  maxMemoryBytes: Number.MAX_SAFE_INTEGER,
  maxArrayBytes: constants.MAX_LENGTH,
  nextTurn: setImmediate,
  warn: (text) => process.emitWarning(text, "PolyrankWarning"),
  currentGroup: variable(),
  currentMesh: variable(),
  commName: variable(),
  hold,
});

native.onCallFrames(callFrames);
native.beginLog(debuglog("polyrank").enabled ? "debug" : "warn");

/** Stops this rank, which is at `site`, in the debugger that is connected to the inspector. Where
 * nobody has opened that, it is opened, and a debugger is waited for. */
function hold(rank, site) {
  const path = site.startsWith("file:") ? fileURLToPath(site) : site;
  const shown = path.replace(`${process.cwd()}/`, "").replace(/:\d+$/, "");
  native.holdAt(rank, shown);
  try {
    const isOpen = inspector.url() !== undefined;
    if (!isOpen) inspector.open(0);
    const address = inspector.url().replace("ws://", "");
    process.stderr.write(
      `polyrank: rank ${rank} is at its breakpoint, ${shown}, in process ${process.pid}. ` +
        `Debugger at ${address}: node inspect ${address.split("/")[0]}, or chrome://inspect\n`,
    );
    // Whoever opened it before may be connected, and would not be waited for.
    if (!isOpen) inspector.waitForDebugger();
    // eslint-disable-next-line no-debugger
    debugger;
  } finally {
    native.holdAt(rank, null);
  }
}

/** What has a value while a callback runs, and through all that it awaits. */
function variable() {
  const storage = new AsyncLocalStorage();
  return { run: storage.run.bind(storage), get: () => storage.getStore() };
}

export * from "./generated/index.js";
