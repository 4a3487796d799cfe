// What a process or a Worker does that `spawn` started: calls the function of its module, tells
// what that throws, and ends with whoever started it. Knows no group.

import { inspect } from "node:util";
import { parentPort, workerData } from "node:worker_threads";

const isWorker = parentPort !== null;

/** The most of what it throws that is told, in characters: a process that ends gets rid of so
 * much. */
const MOST = 20_000;

let hasTold = false;

if (isWorker) await run(workerData.polyrank);
else {
  process.once("message", (job) => {
    // It may end, although the channel is open.
    process.on("disconnect", () => process.kill(process.pid, "SIGTERM"));
    process.channel.unref();
    run(job);
  });
}

async function run({ url, name, rank, args }) {
  // What is thrown where nobody waits for it ends the process, and is told before.
  process.on("uncaughtExceptionMonitor", (error) => failed(error));
  process.on("exit", (code) => code !== 0 && failed(null));
  try {
    const entry = await import(url);
    const called = name === "default" ? (entry.default?.default ?? entry.default) : entry[name];
    if (typeof called !== "function") {
      const names = Object.keys(entry).join(", ") || "nothing";
      throw new TypeError(`spawn(): ${url} exports no function '${name}'; it exports ${names}`);
    }
    await called(rank, ...args);
  } catch (error) {
    await failed(error);
    process.exit(1);
  }
}

/** Tells once when it failed, and what it threw; null: nothing, it has ended itself. */
function failed(error) {
  if (hasTold) return null;
  hasTold = true;
  const text = error === null ? "" : inspect(error).slice(0, MOST);
  const message = { polyrank: "failed", when: process.hrtime.bigint(), text };
  if (isWorker) return parentPort.postMessage(message);
  // Who started it may be gone.
  if (!process.connected) return null;
  return new Promise((resolve) => process.send(message, resolve));
}
