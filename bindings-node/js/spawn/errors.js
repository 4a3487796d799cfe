// How ranks fail that `spawn` started. Knows not how that is noticed.

/** A rank has failed. */
export class ProcessError extends Error {
  constructor(message, { rank, pid }) {
    super(message);
    this.name = this.constructor.name;
    this.rank = rank;
    this.pid = pid;
  }
}

/** Its function threw, or its promise rejected. */
export class ProcessRaisedError extends ProcessError {}

/** It has ended otherwise: by a signal, or with an exit code. */
export class ProcessExitedError extends ProcessError {
  constructor(message, { exitCode, signal, ...who }) {
    super(message, who);
    this.exitCode = exitCode;
    this.signal = signal;
  }
}
