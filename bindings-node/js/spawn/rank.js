// What a process or a Worker does that `spawn` started: calls the function of its module, tells
// what that throws, and ends with whoever started it. Knows no group.

import { once } from "node:events";
import { inspect } from "node:util";
import { parentPort, workerData } from "node:worker_threads";

const isWorker = parentPort !== null;

/** The most of what it throws that is told, in characters: a process that ends gets rid of so
 * much. */
const MOST = 20_000;

let hasTold = false;

// Awaited here: Node ends with a code of its own where the function never does.
await run(isWorker ? workerData.polyrank : await received());

/** What this process is to do. It ends with the one that says so. */
async function received() {
  process.on("disconnect", () => process.kill(process.pid, "SIGTERM"));
  const [job] = await once(process, "message");
  // It may end, although the channel is open.
  process.channel?.unref();
  return job;
}

async function run({ url, name, rank, args }) {
  // What is thrown where nobody waits for it ends the process, and is told before.
  process.on("uncaughtExceptionMonitor", (error) => failed(error));
  process.on("exit", (code) => code !== 0 && failed(null));
  try {
    const entry = await import(url);
    // Of CommonJS, Node sees some exports only as properties of the default one.
    const called = name === "default" ? (entry.default?.default ?? entry.default) : entry[name];
    const found = called ?? entry.default?.[name];
    if (typeof found !== "function") {
      const names = Object.keys(entry).join(", ") || "nothing";
      throw new TypeError(`spawn(): ${url} exports no function '${name}'; it exports ${names}`);
    }
    await found(rank, ...args);
  } catch (error) {
    await failed(error);
    process.exit(1);
  }
}

/** Tells once when it failed, and what it threw; null: nothing, it has ended itself. */
function failed(error) {
  if (hasTold) return null;
  hasTold = true;
  const text = error === null ? "" : textOf(error).slice(0, MOST);
  const message = { polyrank: "failed", when: process.hrtime.bigint(), text };
  if (isWorker) return parentPort.postMessage(message);
  // Who started it may be gone.
  if (!process.connected) return null;
  return new Promise((resolve) => process.send(message, resolve));
}

function textOf(error) {
  try {
    return inspect(error);
  } catch {
    // What an error shows of itself may throw.
    return "an error that cannot be shown";
  }
}
