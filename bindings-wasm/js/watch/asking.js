// Requests of the watch to a store, which must not keep it from saying what it knows. Knows no key.

/** How long a request to a store may take. */
const STORE_LIMIT_MS = 2000;

/** Why ranks cannot be asked whose store does not answer. */
const SILENT =
  "their store does not answer; whoever serves it, usually rank 0, is stopped or cut off";

/** What `promise` gives, if that comes soon; `onLate` is called if it does not. */
export function within(promise, onLate = () => {}) {
  let limit;
  const late = new Promise((_, reject) => {
    limit = setTimeout(() => {
      onLate();
      reject(new SilentStoreError());
    }, STORE_LIMIT_MS);
    limit.unref?.();
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(limit));
}

class SilentStoreError extends Error {
  constructor() {
    super(`the store has not answered for ${STORE_LIMIT_MS / 1000} s`);
  }
}

/** Why ranks cannot be asked, as an error of their store says it. */
export function obstacleOf(error) {
  const isSilent = error instanceof SilentStoreError || error?.kind === "StoreTimeout";
  return isSilent ? SILENT : String(error?.message ?? error);
}
