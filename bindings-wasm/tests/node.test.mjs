// The package under Node, with the WebSocket of the package `ws` in the place of a browser's.

import { test } from "node:test";

import WebSocket from "ws";

import { local } from "./cases/local.mjs";
import { memory } from "./cases/memory.mjs";

globalThis.WebSocket ??= WebSocket;
const pr = await import("../js/index.js");

for (const [name, run] of Object.entries({ ...local, ...memory })) {
  test(name, () => run(pr));
}
