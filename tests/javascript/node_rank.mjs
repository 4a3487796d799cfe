// Runs a module as a rank in Node: `node node_rank.mjs MODULE`, started by `polyrank run`.
//
// MODULE exports `main(pr, here)`, which gives the exit code; the same module runs in a browser
// through browser_rank.mjs. Knows nothing of what it does.

import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { ROOT } from "./server.mjs";

const pr = await import(pathToFileURL(join(ROOT, "bindings-node/js/index.js")).href);
const { main } = await import(pathToFileURL(resolve(process.argv[2])).href);

/** What a rank is told of the place in which it runs. */
const here = {
  language: "Node",
  /** How it finds the others. */
  init: { initMethod: "env://", backend: process.env.POLYRANK_TEST_BACKEND },
  /** Where tensors lie, if not in memory of the host. */
  device: process.env.POLYRANK_TEST_DEVICE,
  /** Shows a line. */
  say: (line) => console.log(line),
  /** The text of a file of the repository. */
  load: (path) => readFile(join(ROOT, path), "utf8"),
  arguments: process.argv.slice(3),
};

process.exitCode = await main(pr, here);
