// One rank that `spawn` started, as a process or as a Worker: how it is started, what it tells, how
// it ended, how it is ended. Knows not the others.

import { fork } from "node:child_process";
import { Worker } from "node:worker_threads";

const PROGRAM = new URL("./rank.js", import.meta.url);

/** How long what an ended process still told may take to come, ms: its children may hold the
 * channel open. */
const LAST_WORDS_MS = 1000;

class Rank {
  /** How it ended, `{ code, signal }`, once it has. */
  end = null;
  /** When and what it threw, if it has told that. */
  told = null;
  /** It serves as long as there is a rank, also where nobody keeps the context. */
  #store;
  #daemon;
  /** How many wait for its end. */
  #holders = 0;
  #resolve;

  constructor({ rank }, { store, daemon }) {
    this.rank = rank;
    this.#store = store;
    this.#daemon = daemon;
    this.over = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  listen(message) {
    if (message?.polyrank === "failed") this.told ??= message;
  }

  hasEnded(code, signal) {
    this.end ??= { code, signal };
    this.#store = null;
    this.#resolve();
  }

  /** Somebody waits for its end from now on. */
  hold() {
    this.#holders += 1;
    this.#refer();
  }

  /** They do not any more. */
  release() {
    this.#holders -= 1;
    this.#refer();
  }

  /** The program does not end before it, unless it is a daemon for which nobody waits. */
  #refer() {
    if (this.#daemon) this.keepsProgram(this.#holders > 0);
  }
}

/** A process. Its IPC channel tells it when this process ends. */
export class ProcessRank extends Rank {
  #sent = new Set();

  constructor(job, { env, ...how }) {
    super(job, how);
    this.handle = fork(PROGRAM, argumentsOfProgram(), {
      env,
      execArgv: optionsOfNode(),
      serialization: "advanced",
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    this.pid = this.handle.pid;
    this.title = `process ${this.pid}`;
    this.handle.on("message", (message) => this.listen(message));
    // How it ended says more than that it could not be sent anything.
    this.handle.on("error", (error) => this.#failed(error));
    this.handle.once("exit", (code, signal) => this.#exited(code, signal));
    // Where it cannot be sent, how the process ended says more.
    this.handle.send(job, () => {});
    if (how.daemon) this.keepsProgram(false);
  }

  keepsProgram(does) {
    for (const it of [this.handle, this.handle.channel]) it?.[does ? "ref" : "unref"]();
  }

  terminate() {
    this.#send("SIGTERM");
  }

  kill() {
    this.#send("SIGKILL");
  }

  /** Whether it ended because it was told to. */
  wasStopped() {
    return this.#sent.has(this.end.signal);
  }

  #send(signal) {
    this.#sent.add(signal);
    this.handle.kill(signal);
  }

  #failed(error) {
    if (this.handle.pid !== undefined) return;
    this.told ??= { when: process.hrtime.bigint(), text: error.stack };
    this.hasEnded(1, null);
  }

  /** What it told may be on its way. */
  #exited(code, signal) {
    if (!this.handle.connected) {
      this.hasEnded(code, signal);
      return;
    }
    const timer = setTimeout(() => this.hasEnded(code, signal), LAST_WORDS_MS);
    this.handle.once("disconnect", () => {
      clearTimeout(timer);
      this.hasEnded(code, signal);
    });
  }
}

/** A Worker. It ends with this process. */
export class WorkerRank extends Rank {
  #wasStopped = false;

  constructor(job, { env, ...how }) {
    super(job, how);
    const options = { workerData: { polyrank: job }, env, argv: argumentsOfProgram() };
    // It has those of this process, but Node starts none beside an evaluated program's type.
    if (process.execArgv.some((word) => /^--input-type\b/u.test(word))) options.execArgv = [];
    this.handle = new Worker(PROGRAM, options);
    this.pid = this.handle.threadId;
    this.title = `Worker ${this.pid}`;
    this.handle.on("message", (message) => this.listen(message));
    this.handle.on("error", (error) => {
      const text = error instanceof Error ? error.stack : String(error);
      this.told ??= { when: process.hrtime.bigint(), text };
    });
    // One that was terminated before it began ends with 0.
    this.handle.once("exit", (code) => this.hasEnded(this.wasStopped() ? 1 : code, null));
    if (how.daemon) this.keepsProgram(false);
  }

  keepsProgram(does) {
    this.handle[does ? "ref" : "unref"]();
  }

  terminate() {
    this.#wasStopped = true;
    this.handle.terminate();
  }

  kill() {
    this.terminate();
  }

  /** Whether it ended because it was told to. */
  wasStopped() {
    return this.#wasStopped && this.told === null;
  }
}

/** What stands on the command line behind the program's name. */
function argumentsOfProgram() {
  const hasFile = !process.execArgv.some((word) => EVALUATES.test(word));
  return process.argv.slice(hasFile ? 2 : 1);
}

/** Options of Node with a program in place of a file. */
const EVALUATES = /^(-e|--eval|-p|-pe|--print)(=|$)/u;

/** Options of Node that are about the one process that has them: a program, which would be run in
 * place of the rank's, a debugger's port, a runner of tests. */
const OF_ONE_PROCESS = /^(-i|-c|--(input-type|inspect|test|watch|interactive|check)\b.*)$/u;

/** The options that Node was started with, less those of one process. */
function optionsOfNode() {
  const words = [];
  let isValue = false;
  for (const word of process.execArgv) {
    const isOfOne = EVALUATES.test(word) || OF_ONE_PROCESS.test(word);
    if (!isValue && !isOfOne) words.push(word);
    isValue = !isValue && /^(-e|--eval|-p|-pe|--print|--input-type|--inspect-port)$/u.test(word);
  }
  return words;
}
