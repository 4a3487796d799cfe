// How an operation stands, and who is told how it ended. Knows nothing of what runs it.

/** What all operations have that take a while. */
export class EndingOperation {
  /** "queued" | "running" | "arriving" | "ended" */
  state = "queued";
  /** The outcome: null, or a record with the error, which may be any value. */
  failure = null;
  #listeners = null;
  #began = performance.now();
  #endedAt = null;

  /** How long it took, or has taken so far. */
  milliseconds() {
    return (this.#endedAt ?? performance.now()) - this.#began;
  }

  /** Whether somebody is to be told of its end. */
  get isAwaited() {
    return this.#listeners !== null && this.#listeners.size > 0;
  }

  /** Calls `listener` once with the failure or null, immediately if it has ended. */
  whenEnded(listener) {
    if (this.state === "ended") listener(this.failure);
    else (this.#listeners ??= new Set()).add(listener);
  }

  /** Removes a listener. */
  forget(listener) {
    this.#listeners?.delete(listener);
  }

  /** It has ended, with `failure` or well: tells all who asked. */
  notify(failure) {
    this.state = "ended";
    this.failure = failure;
    this.#endedAt = performance.now();
    const listeners = this.#listeners;
    this.#listeners = null;
    if (listeners !== null) for (const listener of listeners) listener(failure);
  }
}
