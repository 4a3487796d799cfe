// Runs a module as a rank in a headless Chromium: `node browser_rank.mjs MODULE`, started by
// `polyrank run` as if it were the rank itself: it passes on what the page says and how it ends.
//
// MODULE exports `main(pr, here)`, which gives the exit code; the same module runs in Node through
// node_rank.mjs. Knows nothing of what it does.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { relative, resolve, sep } from "node:path";
import { setTimeout as after } from "node:timers/promises";
import { launchChromium } from "./chromium.mjs";
import { ROOT, serve } from "./server.mjs";

const words = process.argv.slice(3);
const { RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT } = process.env;
const module = `/${relative(ROOT, resolve(process.argv[2])).split(sep).join("/")}`;
const url = `ws://${MASTER_ADDR}:${MASTER_PORT}/?rank=${RANK}&world_size=${WORLD_SIZE}`;

// A page cannot serve the store: what usually is rank 0's to do is done beside it.
const program = process.env.POLYRANK_PROGRAM ?? "polyrank";
const place = ["--host", MASTER_ADDR, "--port", MASTER_PORT];
const store = RANK === "0" ? spawn(program, ["store", ...place], { stdio: "ignore" }) : undefined;
process.once("exit", () => store?.kill());

const server = await serve();
const browser = await launchChromium();
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => browser.close().finally(() => process.exit(1)));
}
// A page would come again by itself, but each attempt in vain is an error in its console.
await isServed(Number(MASTER_PORT), MASTER_ADDR);
const page = await browser.newPage();
page.on("console", (message) => console.error(`[${message.type()}] ${message.text()}`));
page.on("pageerror", (error) => console.error(error.stack ?? String(error)));
await page.exposeFunction("say", (line) => console.log(line));
await page.goto(server.origin);

const ended = new Promise((done) => {
  page.once("close", () => done("the page was closed"));
  page.once("crash", () => done("the page crashed"));
  browser.once("disconnected", () => done("the browser is gone"));
});
const code = await Promise.race([page.evaluate(rank, { module, url, words }), ended]).catch(
  (error) => error.stack ?? String(error),
);
if (typeof code !== "number") {
  console.error(code);
}
await browser.close().catch(() => {});
server.close();
process.exit(typeof code === "number" ? code : 1);

/** Waits until a server listens; the process that started this rank ends it if none ever does. */
async function isServed(port, host) {
  for (;;) {
    const socket = connect(port, host);
    try {
      await once(socket, "connect");
      return;
    } catch {
      await after(50);
    } finally {
      socket.destroy();
    }
  }
}

/** Runs in the page. */
async function rank({ module, url, words }) {
  const pr = await import("polyrank-web");
  const { main } = await import(module);
  const load = async (path) => {
    const response = await fetch(`/${path}`);
    if (!response.ok) {
      throw new Error(`${path}: ${response.status}`);
    }
    return response.text();
  };
  const { say } = globalThis;
  const init = { initMethod: url };
  return main(pr, { language: "Browser", init, say, load, arguments: words });
}
