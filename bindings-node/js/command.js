#!/usr/bin/env node
// The command `polyrank`: run, store, bench and predict, as `npx polyrank` starts it.

import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const { command } = createRequire(import.meta.url)("../polyrank.node");

// Scripts run with the Node that runs this one.
process.env.POLYRANK_NODE ??= process.execPath;
const itself = [process.execPath, fileURLToPath(import.meta.url)];
process.exit(command(["polyrank", ...process.argv.slice(2)], itself));
