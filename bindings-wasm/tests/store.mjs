// A store's server of its own for a test: `polyrank store`, and other uses of that command. Knows
// nothing of who joins there.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

import { ROOT } from "../../tests/javascript/server.mjs";

const folders = [
  process.env.POLYRANK_TARGET,
  join(ROOT, "target/release"),
  join(ROOT, "target/debug"),
];

function program() {
  const programs = folders.filter(Boolean).map((folder) => join(folder, "polyrank"));
  const found = programs.find(existsSync);
  if (found === undefined) throw new Error("no launcher: cargo build -p polyrank-cli");
  return found;
}

/** What the command `polyrank` says on standard output. */
export async function command(words) {
  return (await promisify(execFile)(program(), words, { timeout: 30_000 })).stdout;
}

/** Starts a server on a free port of this host, `options` being more of its words:
 * `{ url, urls, stop }`, all addresses in `urls` and the one for every client of it in `url`. */
export async function startStore(options = []) {
  const words = ["store", "--host", "127.0.0.1", "--port", "0", ...options];
  const child = spawn(program(), words, { stdio: ["ignore", "pipe", "inherit"] });
  const wanted = options.includes("--certificate") ? 3 : 2;
  const urls = new Promise((resolve, reject) => {
    const found = [];
    createInterface({ input: child.stdout }).on("line", (line) => {
      found.push(...(line.match(/\b(tcp|wss?):\/\/\S+/g) ?? []));
      if (found.length === wanted) resolve(found);
    });
    once(child, "exit").then(([code]) => reject(new Error(`the store ended with ${code}`)));
  });
  const all = await urls;
  return { url: all.find((url) => url.startsWith("ws:")), urls: all, stop: () => child.kill() };
}
