// The native half of this package: loads the WebAssembly module and gives it its events. Knows
// nothing of what the module does.

import init, * as module from "./wasm/polyrank.js";
import { operationsOf } from "./works.js";

const place = new URL("./wasm/polyrank_bg.wasm", import.meta.url);

/** The bytes of the module, where they are not a web page's to fetch. */
async function read(file) {
  const fileSystem = "node:fs/promises";
  const { readFile } = await import(/* @vite-ignore */ fileSystem);
  return readFile(file);
}

/** Messages to itself come behind everything that has happened, and before any timer. */
function startEvents() {
  const channel = new MessageChannel();
  let timer;
  let dueAt = 0;
  let isPosted = false;
  const turn = () => {
    isPosted = false;
    // Under Node, a port that listens keeps the process alive.
    channel.port1.unref?.();
    module.turn();
  };
  channel.port1.onmessage = turn;
  channel.port1.unref?.();
  const post = () => {
    // A turn that was asked for may have been run by something else since; its message still comes.
    if (isPosted) return;
    isPosted = true;
    channel.port1.ref?.();
    channel.port2.postMessage(null);
  };
  const timeOut = () => {
    timer = undefined;
    module.timeOut();
  };
  // One that is not needed any more stays, so that operations that follow each other need not set
  // one each: it comes too early for the next, which does no harm. It keeps no Node process alive.
  const setTimer = (ms) => {
    if (ms === 0) return timer?.unref?.();
    const due = performance.now() + ms;
    if (timer !== undefined && dueAt <= due) return timer.ref?.();
    clearTimeout(timer);
    dueAt = due;
    timer = setTimeout(timeOut, ms);
    return undefined;
  };
  module.start(post, setTimer);
}

const { memory } = await init({
  module_or_path: place.protocol === "file:" ? await read(place) : place,
});
startEvents();

/** What the JavaScript half calls: the interface `Native`. */
export const native = {
  platform: "web",
  version: module.version,
  shutdownLimitMs: module.shutdownLimitMs,
  alloc: module.alloc,
  ...operationsOf(module, memory),
  invoke: module.invoke,
  invokeAsync: module.invokeAsync,
  resolve: module.resolve,
  cancellation: module.cancellation,
  cancel: module.cancel,
  watchFailure: module.watchFailure,
  takeFailures: module.takeFailures,
  checkMembers: module.checkMembers,
  onCompleted: module.onCompleted,
  registerBackend: module.registerBackend,
  makeReduction: module.makeReduction,
  dropReduction: module.dropReduction,
  deviceBackend: module.deviceBackend,
  takeBackendTask: module.takeBackendTask,
  endBackendTask: module.endBackendTask,
  makeStore: module.makeStore,
  holdStore: module.holdStore,
  takeStoreTask: module.takeStoreTask,
  endStoreTask: module.endStoreTask,
  carryPipes: module.carryPipes,
  turn: module.turn,
};
