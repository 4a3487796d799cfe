// The declarations beside those of a browser: its own AbortSignal, its own events. Compiled, never
// run.

import * as pr from "polyrank";

export async function withABrowsersTypes(store: pr.Store, group: pr.ProcessGroup): Promise<void> {
  const controller = new AbortController();
  await store.get("key", { signal: controller.signal });
  await group.allreduce(new Float32Array(1), { signal: AbortSignal.timeout(5) });
  addEventListener("pagehide", () => group.abort());
}
