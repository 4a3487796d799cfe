// `polyrank/spawn`: ranks as processes or Workers that this program starts. They meet in a store
// that this process serves on the loopback interface. Knows no group.

import { statSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { deserialize, serialize } from "node:v8";
import { isMainThread, workerData } from "node:worker_threads";

import { InvalidArgumentError, InvalidTypeError } from "./generated/errors.js";
import { ProcessGroup, TCPStore, initProcessGroup } from "./index.js";
import {
  ANYTHING,
  BOOLEAN,
  NUMBER,
  STRING,
  expectAtMost,
  optionsOf,
} from "./runtime/options.js";
import { ProcessContext } from "./spawn/context.js";
import { ProcessRank, WorkerRank } from "./spawn/ranks.js";

export { ProcessContext } from "./spawn/context.js";
export { ProcessError, ProcessExitedError, ProcessRaisedError } from "./spawn/errors.js";

const KINDS = { process: ProcessRank, worker: WorkerRank };
const OPTIONS = {
  name: STRING,
  args: ANYTHING,
  nprocs: NUMBER,
  kind: STRING,
  join: BOOLEAN,
  daemon: BOOLEAN,
};
const HOST = "127.0.0.1";

/** Starts ranks, each of which calls a function that a module exports. */
export async function spawn(entry, options) {
  expectAtMost(2, "spawn", arguments.length);
  const { nprocs, kind, join, daemon, ...job } = settings(entry, options);
  const store = await TCPStore.connect(HOST, 0, { isMaster: true, waitForWorkers: false });
  const ranks = [];
  const context = new ProcessContext(ranks);
  try {
    for (let rank = 0; rank < nprocs; rank += 1) {
      const env = { ...process.env, ...variables(rank, nprocs, store.port) };
      const { port } = store;
      ranks.push(new KINDS[kind]({ ...job, rank, nprocs, port }, { env, daemon, store }));
    }
  } catch (error) {
    // A later one cannot be started.
    await context.stop();
    throw error;
  }
  if (!join) return context;
  await context.join();
}

/** The group of all ranks that `spawn` started. */
export async function joinWorld(options) {
  expectAtMost(1, "joinWorld", arguments.length);
  const job = isMainThread ? undefined : workerData?.polyrank;
  if (job === undefined) return initProcessGroup(options ?? {});
  // The default group belongs to the process, which has other ranks as well.
  const store = await TCPStore.connect(HOST, job.port, { waitForWorkers: false });
  return ProcessGroup.join(store, job.rank, job.nprocs, options ?? {});
}

/** What is asked for, once it is known that it can be done. */
function settings(entry, given) {
  const options = optionsOf("spawn", given, OPTIONS);
  const [name, nprocs] = [options.name ?? "default", options.nprocs ?? 1];
  const kind = options.kind ?? "process";
  if (!Number.isSafeInteger(nprocs) || nprocs < 1) {
    throw refused(`'nprocs' must be a whole number from 1, not ${nprocs}`);
  }
  if (!Object.hasOwn(KINDS, kind)) {
    throw refused(`'kind' must be one of process, worker, not ${kind}`);
  }
  const args = copied(options.args ?? [], kind);
  const [join, daemon] = [options.join ?? true, options.daemon ?? false];
  return { url: urlOf(entry), name, args, nprocs, kind, join, daemon };
}

/** What arrives where `args` are sent to. */
function copied(args, kind) {
  if (!Array.isArray(args)) throw new InvalidTypeError("spawn(): 'args' must be an array");
  try {
    return kind === "process" ? deserialize(serialize(args)) : structuredClone(args);
  } catch (error) {
    const why = error?.message ?? String(error);
    throw refused(`'args' cannot be sent to another ${kind}: ${why}`);
  }
}

/** Where a module is: a URL, or a path, relative to the current folder. */
function urlOf(entry) {
  const text = typeof entry === "string" ? entry : entry?.href;
  if (typeof text !== "string") {
    throw new InvalidTypeError("spawn(): 'entry' must be the URL or the path of a module");
  }
  const isUrl = typeof entry !== "string" || /^[a-z][a-z0-9+.-]*:/iu.test(text);
  const path = isUrl ? pathOf(text) : resolve(text);
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) {
    throw refused(`no such file: ${path}`);
  }
  return isUrl ? new URL(text).href : pathToFileURL(path).href;
}

function pathOf(url) {
  try {
    return fileURLToPath(url);
  } catch (error) {
    const why = `(${error.message})`;
    throw refused(`'entry' is ${url}; a path or the URL of a file here is expected ${why}`);
  }
}

function refused(why) {
  return new InvalidArgumentError(`spawn(): ${why}`, {});
}

/** What launchers set. */
function variables(rank, size, port) {
  return {
    RANK: String(rank),
    LOCAL_RANK: String(rank),
    WORLD_SIZE: String(size),
    LOCAL_WORLD_SIZE: String(size),
    MASTER_ADDR: HOST,
    MASTER_PORT: String(port),
    TORCHELASTIC_USE_AGENT_STORE: "True",
  };
}
