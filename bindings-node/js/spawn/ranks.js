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
  #resolve;

  constructor(rank) {
    this.rank = rank;
    this.over = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  listen(message) {
    if (message?.polyrank === "failed") this.told ??= message;
  }

  hasEnded(code, signal) {
    this.end ??= { code, signal };
    this.#resolve();
  }
}

/** A process. Its IPC channel tells it when this process ends. */
export class ProcessRank extends Rank {
  #sent = null;

  constructor(job, { env, daemon }) {
    super(job.rank);
    this.handle = fork(PROGRAM, [], { env, execArgv: optionsOfNode(), serialization: "advanced" });
    this.pid = this.handle.pid;
    this.title = `process ${this.pid}`;
    this.handle.on("message", (message) => this.listen(message));
    // How it ended says more than that it could not be sent anything.
    this.handle.on("error", (error) => this.#failed(error));
    this.handle.once("exit", (code, signal) => this.#exited(code, signal));
    this.handle.send(job, () => {});
    if (daemon) {
      this.handle.unref();
      this.handle.channel?.unref();
    }
  }

  terminate() {
    this.#send("SIGTERM");
  }

  kill() {
    this.#send("SIGKILL");
  }

  /** Whether it ended because it was told to. */
  wasStopped() {
    return this.#sent !== null && this.end.signal === this.#sent;
  }

  #send(signal) {
    this.#sent = signal;
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

  constructor(job, { env, daemon }) {
    super(job.rank);
    this.handle = new Worker(PROGRAM, { workerData: { polyrank: job }, env });
    this.pid = this.handle.threadId;
    this.title = `Worker ${this.pid}`;
    this.handle.on("message", (message) => this.listen(message));
    this.handle.on("error", (error) => {
      const text = error instanceof Error ? error.stack : String(error);
      this.told ??= { when: process.hrtime.bigint(), text };
    });
    // One that was terminated before it began ends with 0.
    this.handle.once("exit", (code) => this.hasEnded(this.wasStopped() ? 1 : code, null));
    if (daemon) this.handle.unref();
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

/** The options that Node was started with, less a program on the command line: it would be run in
 * place of the rank's. */
function optionsOfNode() {
  const words = [];
  for (let index = 0; index < process.execArgv.length; index += 1) {
    const word = process.execArgv[index];
    if (/^(-e|--eval|-p|-pe|--print)$/u.test(word)) index += 1;
    else if (!/^--(eval|print|input-type)=/u.test(word)) words.push(word);
  }
  return words;
}
