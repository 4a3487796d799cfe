// One rank of a test, as a process: joins the group that the test names and runs its function.

import * as pr from "polyrank";

const { module, name, rank, size, port, argument } = JSON.parse(process.argv[2]);

try {
  const store = await pr.TCPStore.connect("127.0.0.1", port, { waitForWorkers: false });
  const group = await pr.ProcessGroup.join(store, rank, size, { timeout: 60_000 });
  const scenario = (await import(module))[name];
  const value = await scenario({ pr, group, store, rank, size, argument });
  if (!value?.staysOpen) await group.shutdown();
  answer({ value });
} catch (error) {
  answer({ error: error?.stack ?? String(error) });
  process.exitCode = 1;
}

/** Tells the test. The channel is closed then, so that a process with nothing to do ends. */
function answer(message) {
  process.send(message, () => process.disconnect());
}
