// The package under Node, with the WebSocket of the package `ws` in the place of a browser's.

import { test } from "node:test";

import WebSocket from "ws";

import { local } from "./cases/local.mjs";
import { memory } from "./cases/memory.mjs";
import { values } from "./cases/values.mjs";

globalThis.WebSocket ??= WebSocket;
const pr = await import("../js/index.js");
const { native } = await import("../js/runtime/native.js");

for (const [name, run] of Object.entries({ ...local, ...memory, ...values })) {
  test(name, () => run(pr, native));
}
