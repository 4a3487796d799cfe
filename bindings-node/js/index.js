// polyrank for Node: loads the native half and exports the whole API.

import { AsyncLocalStorage } from "node:async_hooks";
import { constants } from "node:buffer";
import { createRequire } from "node:module";
import { debuglog } from "node:util";

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
});

native.beginLog(debuglog("polyrank").enabled ? "debug" : "warn");

/** What has a value while a callback runs, and through all that it awaits. */
function variable() {
  const storage = new AsyncLocalStorage();
  return { run: storage.run.bind(storage), get: () => storage.getStore() };
}

export * from "./generated/index.js";
