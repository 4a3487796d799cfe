// A store's server of its own for a test: `polyrank store`. Knows nothing of who joins there.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { ROOT } from "../../tests/javascript/server.mjs";

const folders = [
  process.env.POLYRANK_TARGET,
  join(ROOT, "target/release"),
  join(ROOT, "target/debug"),
];

/** Starts a server on a free port of this host: `{ url, stop }`. */
export async function startStore() {
  const programs = folders.filter(Boolean).map((folder) => join(folder, "polyrank"));
  const program = programs.find(existsSync);
  if (program === undefined) throw new Error("no launcher: cargo build -p polyrank --bin polyrank");
  const words = ["store", "--host", "127.0.0.1", "--port", "0"];
  const child = spawn(program, words, { stdio: ["ignore", "pipe", "inherit"] });
  const url = new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const found = /ws:\/\/\S+/.exec(line);
      if (found) resolve(found[0]);
    });
    once(child, "exit").then(([code]) => reject(new Error(`the store ended with ${code}`)));
  });
  return { url: await url, stop: () => child.kill() };
}
