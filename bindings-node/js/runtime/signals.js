// AbortSignals: what ends a wait here ends it in the native half too. Knows no operation.

import { native } from "./native.js";

/** What `begin` returns, unless `signal` ends the wait first; it gets a number to cancel with. */
export function untilAborted(signal, begin) {
  if (signal === null) return begin(undefined);
  if (signal.aborted) return Promise.reject(signal.reason);
  const cancellation = native.cancellation();
  const answer = begin(cancellation);
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      native.cancel(cancellation);
      reject(signal.reason);
    };
    const forget = () => signal.removeEventListener("abort", onAbort);
    signal.addEventListener("abort", onAbort, { once: true });
    answer.then(resolve, reject).finally(forget);
  });
}
