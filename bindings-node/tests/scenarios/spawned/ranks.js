// What ranks do that tests of `spawn` start. Each function is given its rank first.

import { existsSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { parentPort } from "node:worker_threads";

import * as pr from "polyrank";
import { joinWorld } from "polyrank/spawn";

export default async function sums(rank, folder, scale) {
  const group = await joinWorld();
  const tensor = Float64Array.of(scale * (rank + 1));
  await group.allreduce(tensor);
  const { RANK, LOCAL_RANK } = process.env;
  const facts = [tensor[0], group.rank(), group.size(), RANK, LOCAL_RANK];
  writeFileSync(`${folder}/${rank}`, facts.join(" "));
  await pr.destroyProcessGroup(group);
}

/** Needs nothing of `polyrank/spawn`. */
export async function meets(rank, folder) {
  await pr.initProcessGroup();
  writeFileSync(`${folder}/${rank}`, `${pr.getRank()} of ${pr.getWorldSize()}`);
  await pr.destroyProcessGroup();
}

/** Rank 1 fails, for which the others wait. */
export async function fails(rank, how) {
  const group = await joinWorld();
  if (rank === 1) HOW[how]();
  if (how === "reject" && rank === 1) await Promise.reject(new RangeError("no such weights"));
  await (rank === 1 ? new Promise(() => setInterval(() => {}, 1000)) : group.barrier());
}

const HOW = {
  throw: () => {
    throw new RangeError("no such weights");
  },
  long: () => {
    throw new RangeError("x".repeat(1_000_000));
  },
  reject: () => {},
  stray: () => setImmediate(() => HOW.throw()),
  forgotten: () => void Promise.reject(new RangeError("no such weights")),
  exit: () => process.exit(3),
  kill: () => process.kill(process.pid, "SIGKILL"),
};

/** Waits until there is such a file. */
export async function waits(rank, path) {
  while (!existsSync(path)) await setTimeout(1);
}

/** Comes to the others when the file "go on" is there. */
export async function meetsLate(rank, folder) {
  writeFileSync(`${folder}/here ${rank}`, "");
  await waits(rank, `${folder}/go on`);
  await meets(rank, folder);
}

/** Waits for what never comes, with nothing that could bring it. */
export async function unsettled() {
  await new Promise(() => {});
}

export function tellsArguments(rank, folder) {
  writeFileSync(`${folder}/${rank}`, process.argv.slice(2).join(" "));
}

/** Rank 0 takes no notice of SIGTERM; rank 1 fails when it does not; others do. */
export async function stubborn(rank, folder) {
  if (rank === 1) {
    await waits(rank, `${folder}/ready`);
    throw new RangeError("over");
  }
  if (rank === 0) {
    process.on("SIGTERM", () => {});
    writeFileSync(`${folder}/ready`, "");
  }
  setInterval(() => {}, 1000);
}

/** Says who it is, and stays. */
export function stays() {
  process.stdout.write(`${process.pid}\n`);
  setInterval(() => {}, 1000);
}

export function isWorker(rank, folder) {
  writeFileSync(`${folder}/${rank}`, String(parentPort !== null));
}
