// Calls of `polyrank/spawn` that must compile, and some that must not. Compiled, never run.

import * as pr from "polyrank";
import { ProcessContext, ProcessExitedError, joinWorld, spawn } from "polyrank/spawn";

export async function started(entry: { href: string }): Promise<void> {
  const over: Promise<void> = spawn(entry, { args: [1, "a"], nprocs: 4, kind: "worker" });
  await over;
  await spawn("./main.mjs", { name: "train", join: true });
  const context: ProcessContext = await spawn(entry, { nprocs: 2, join: false, daemon: true });
  const pids: number[] = context.pids();
  const areOver: boolean = await context.join({ timeout: 1000, gracePeriod: 10 });
  await context.stop();
  // @ts-expect-error: there is no such kind
  await spawn(entry, { kind: "thread" });
  // @ts-expect-error: a function has no module
  await spawn(() => 1);
  void [pids, areOver];
}

export async function rank(error: unknown): Promise<void> {
  const group: pr.ProcessGroup = await joinWorld({ timeout: 1000 });
  await pr.destroyProcessGroup(group);
  if (error instanceof ProcessExitedError) {
    const code: number | null = error.exitCode;
    void [code, error.signal, error.rank, error.pid];
  }
}
