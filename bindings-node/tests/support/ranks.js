// Ranks of a test as processes of their own: each runs one function of the test's scenario module
// and sends back what that returned. The store lives in the test's own process, so that any rank
// may die. Knows no scenario.

import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

import * as pr from "polyrank";

const RANK = fileURLToPath(new URL("./rank.js", import.meta.url));

/** Longer than any scenario takes, shorter than the test runner's patience. */
const LIMIT_MS = 120_000;

/** The module with what the ranks of a test do. */
export function scenarios(name) {
  return new URL(`../scenarios/${name}.js`, import.meta.url).href;
}

/** Results of `name`, an export of `module`, on `size` ranks, in the order of the ranks. */
export async function onRanks(size, module, name, options = {}) {
  const ranks = await startRanks(size, module, name, options);
  const results = await Promise.all(ranks.map((rank) => rank.result));
  return results.map((result, rank) => {
    if (result.error !== undefined) throw new Error(`rank ${rank}: ${result.error}`);
    return result.value;
  });
}

/** The processes; each has a `result`: `{ value }`, `{ error }` or `{ exit }`, `{ signal }`. */
export async function startRanks(size, module, name, { flags = [], argument = null } = {}) {
  const options = { isMaster: true, waitForWorkers: false, timeout: LIMIT_MS };
  const store = await pr.TCPStore.connect("127.0.0.1", 0, options);
  const ranks = [];
  for (let rank = 0; rank < size; rank += 1) {
    const words = { module, name, rank, size, port: store.port, argument };
    const options = { execArgv: flags, serialization: "advanced" };
    const child = fork(RANK, [JSON.stringify(words)], options);
    child.result = resultOf(child);
    ranks.push(child);
  }
  Promise.all(ranks.map((rank) => rank.result)).then(() => store[Symbol.asyncDispose]?.());
  return ranks;
}

async function resultOf(child) {
  let answer;
  child.on("message", (message) => {
    answer = message;
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  const [exit, signal] = await once(child, "close");
  clearTimeout(timer);
  if (answer !== undefined && exit === 0) return answer;
  if (answer?.error !== undefined) return answer;
  return signal === null ? { exit, error: `ended with code ${exit}` } : { signal, error: signal };
}
