// How fast groups of two Node processes are, next to two Rust processes, on this host and in this
// run: the time of `await pg.allreduce(4 bytes)`, and of a large array that is staged, and of one
// in memory that polyrank owns. The runs take turns, so that what else the host does disturbs all
// alike.
//
//   cargo xtask node --release
//   cargo build --release -p polyrank --example group_speed
//   node bench/speed.mjs [--turns 5] [--calls 5000] [--mib 64] [--rounds 8]
//
// POLYRANK_TARGET: the target folder, if it is another one.

import { execFile, fork } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";

const { values } = parseArgs({
  options: {
    turns: { type: "string", default: "5" },
    calls: { type: "string", default: "5000" },
    mib: { type: "string", default: "64" },
    rounds: { type: "string", default: "8" },
    profile: { type: "string", default: "release" },
  },
});
const calls = Number(values.calls);
const bytes = Number(values.mib) << 20;
const rounds = Number(values.rounds);

const root = fileURLToPath(new URL("../..", import.meta.url));
const target = process.env.POLYRANK_TARGET ?? `${root}target`;
const rust = `${target}/${values.profile}/examples/group_speed`;
const rank = fileURLToPath(new URL("./rank.mjs", import.meta.url));
const run = promisify(execFile);
const addon = fileURLToPath(new URL("../polyrank.node", import.meta.url));
const profile = values.profile === "debug" ? "dev" : values.profile;
need(rust, `cargo build --profile ${profile} -p polyrank --example group_speed`);
need(addon, profile === "release" ? "cargo xtask node --release" : "cargo xtask node");

function need(path, command) {
  if (existsSync(path)) return;
  console.error(`there is no ${path}; in ${root} run:\n  ${command}`);
  process.exit(1);
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function inRust() {
  const port = await freePort();
  const words = (number) => [number, 2, port, calls, bytes, rounds].map(String);
  const both = [0, 1].map((number) => run(rust, words(number), { maxBuffer: 1 << 26 }));
  const [zero] = await Promise.all(both);
  return JSON.parse(zero.stdout);
}

async function inNode() {
  const port = await freePort();
  const words = JSON.stringify({ port, calls, bytes, rounds });
  const both = [0, 1].map((number) => {
    const child = fork(rank, [String(number), words]);
    return new Promise((resolve, reject) => {
      child.once("message", resolve);
      child.once("exit", (code) => reject(new Error(`a rank ended with code ${code}`)));
    });
  });
  const [zero] = await Promise.all(both);
  return zero;
}

const part = (sorted, share) => sorted[Math.floor(sorted.length * share)];
const middle = (list) => part([...list].sort((a, b) => a - b), 0.5);
const fixed = (number) => number.toFixed(1).padStart(7);
const rate = (seconds) => bytes / middle(seconds) / 2 ** 30;

/** Times of the fastest tenth and the median: on a host that is busy the former says more. */
const small = (sorted) => [part(sorted, 0.1), part(sorted, 0.5)];

/** What stands for the rates of Rust, of staged and of owned memory. */
function rates(large) {
  const shown = large.map((one) => (1024 * one).toFixed(0).padStart(7));
  const share = (at) => `${((100 * large[at]) / large[0]).toFixed(0).padStart(4)}%`;
  return `${shown[0]} ${shown[1]} ${share(1)} ${shown[2]} ${share(2)}`;
}

const all = [];
console.log("        4 bytes, us: p10 and median          MiB/s of a large array, and of Rust's");
console.log("turn        Rust           Node       more     Rust       staged        owned");
for (let turn = 1; turn <= Number(values.turns); turn += 1) {
  const [inOne, inOther] = [await inRust(), await inNode()];
  const [one, other] = [small(inOne.micros), small(inOther.micros)];
  const more = other.map((time, at) => time - one[at]);
  const times = [one, other, more].map((pair) => pair.map(fixed).join(" ")).join(" ");
  const large = [inOne.seconds, inOther.staged, inOther.owned].map(rate);
  all.push({ more, large });
  console.log(`${turn}  ${times}  ${rates(large)}`);
}
const more = [0, 1].map((at) => fixed(middle(all.map((turn) => turn.more[at])))).join(" ");
const large = [0, 1, 2].map((at) => middle(all.map((turn) => turn.large[at])));
console.log(`medians of these${" ".repeat(19)}${more}  ${rates(large)}`);
