// Starts jobs with `polyrank run` and watches what they say. Knows nothing of what the ranks do.

import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./server.mjs";

/** Longer than anything takes here: a hang ends with what was said, not with a stuck run. */
const PATIENCE_MS = 60_000;

const TARGET = process.env.POLYRANK_TARGET ?? join(ROOT, "target/debug");

/** What starts a rank of `tests/rounds` in a language; `undefined` where it is missing here. */
export function roundsIn(language) {
  const tests = join(ROOT, "tests");
  const rust = join(TARGET, "examples/rounds");
  const python = process.env.POLYRANK_PYTHON;
  const program = join(tests, "rounds/run.mjs");
  const through = (rank) => ["node", join(tests, "javascript", rank), program];
  const commands = {
    Rust: existsSync(rust) && [rust],
    Python: python && [python, join(tests, "rounds/run.py")],
    Node: existsSync(join(ROOT, "bindings-node/polyrank.node")) && through("node_rank.mjs"),
    Browser: hasBrowserPackage() && through("browser_rank.mjs"),
  };
  return commands[language] || undefined;
}

/** The browser package, if it was built. */
export function hasBrowserPackage() {
  return existsSync(join(ROOT, "bindings-wasm/js/wasm/polyrank_bg.wasm"));
}

/** A running job. */
export class Job {
  /** Starts the commands, one rank each, and room for so many ranks from elsewhere. */
  constructor(commands, external = 0) {
    const parts = commands.flatMap((command, index) => [...(index ? [":"] : []), ...command]);
    const words = ["run", "--keep-going", "--external", String(external), ...parts];
    this.process = spawn(join(TARGET, "polyrank"), words);
    this.lines = [];
    this.waiting = new Set();
    for (const stream of [this.process.stdout, this.process.stderr]) {
      let rest = "";
      stream.setEncoding("utf8").on("data", (text) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop();
        lines.forEach((line) => this.#said(line));
      });
    }
    this.ended = new Promise((done) => this.process.once("close", (code) => done(code)));
  }

  /** The first line from number `from` on that matches, as a match with the line's number. */
  async line(pattern, from = 0) {
    const found = () => {
      for (let at = from; at < this.lines.length; at += 1) {
        const match = pattern.exec(this.lines[at]);
        if (match) {
          return Object.assign(match, { at });
        }
      }
      return undefined;
    };
    return this.#when(found, pattern);
  }

  /** Waits until rank 0 has gone on for some hundred rounds. */
  async goesOn() {
    const seen = this.lines.length;
    const first = await this.line(/^\[rank 0\].*: round \d+/, seen);
    await this.line(/^\[rank 0\].*: round \d+/, first.at + 1);
  }

  /** The number of lines when none has come for a second, or when `patienceMs` are over. */
  async quiet(patienceMs) {
    const until = Date.now() + patienceMs;
    let count = -1;
    while (this.lines.length > count && Date.now() < until) {
      count = this.lines.length;
      await new Promise((done) => setTimeout(done, 1000));
    }
    return this.lines.length;
  }

  /** Ends the job in good order; its exit code. */
  stop() {
    this.process.stdin.end();
    return this.ended;
  }

  kill() {
    this.process.kill("SIGKILL");
    return this.ended;
  }

  #said(line) {
    this.lines.push(line);
    for (const look of this.waiting) {
      look();
    }
  }

  #when(found, what) {
    return new Promise((done, failed) => {
      const stop = (action, value) => {
        clearTimeout(timer);
        this.waiting.delete(look);
        action(value);
      };
      const look = () => {
        const value = found();
        if (value) {
          stop(done, value);
        }
      };
      const late = (why) => new Error(`${why} before ${what}:\n${this.lines.join("\n")}`);
      const timer = setTimeout(() => stop(failed, late("patience ended")), PATIENCE_MS);
      this.ended.then((code) => stop(failed, late(`the job ended with ${code}`)));
      this.waiting.add(look);
      look();
    });
  }
}

/** The loopback ports on which a process listens. */
export function listeningPorts(pid) {
  const sockets = new Set();
  for (const name of readdirSync(`/proc/${pid}/fd`)) {
    try {
      sockets.add(/^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${name}`))?.[1]);
    } catch {
      // It was closed meanwhile.
    }
  }
  const lines = readFileSync(`/proc/${pid}/net/tcp`, "utf8").trim().split("\n").slice(1);
  const rows = lines.map((line) => line.trim().split(/\s+/));
  const listening = rows.filter((row) => row[3] === "0A" && sockets.has(row[9]));
  return listening.map((row) => Number.parseInt(row[1].split(":")[1], 16));
}

/** Kilobytes of memory that a process has. */
export function residentKilobytes(pid) {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
}
