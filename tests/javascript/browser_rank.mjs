// Runs a module as a rank in a headless Chromium: `node browser_rank.mjs MODULE`, started by
// `polyrank run` as if it were the rank itself: it passes on what the page says and how it ends.
//
// MODULE exports `main(pr, here)`, which gives the exit code; the same module runs in Node through
// node_rank.mjs. Knows nothing of what it does.

import { relative, resolve, sep } from "node:path";
import { launchChromium } from "./chromium.mjs";
import { ROOT, serve } from "./server.mjs";

const { RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT } = process.env;
const module = `/${relative(ROOT, resolve(process.argv[2])).split(sep).join("/")}`;
const url = `ws://${MASTER_ADDR}:${MASTER_PORT}/?rank=${RANK}&world_size=${WORLD_SIZE}`;

const server = await serve();
const browser = await launchChromium();
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => browser.close().finally(() => process.exit(1)));
}
const page = await browser.newPage();
page.on("console", (message) => console.error(`[${message.type()}] ${message.text()}`));
page.on("pageerror", (error) => console.error(error.stack ?? String(error)));
await page.exposeFunction("say", (line) => console.log(line));
// The driver of a test may ask for what a page cannot do itself: to be closed, or suspended.
await page.exposeFunction("ask", (wish) => grant(wish));
await page.goto(server.origin);

const ended = new Promise((done) => {
  page.once("close", () => done("the page was closed"));
  page.once("crash", () => done("the page crashed"));
  browser.once("disconnected", () => done("the browser is gone"));
});
const code = await Promise.race([page.evaluate(rank, { module, url, words: words() }), ended]).catch(
  (error) => error.stack ?? String(error),
);
if (typeof code !== "number") {
  console.error(code);
}
await browser.close().catch(() => {});
server.close();
process.exit(typeof code === "number" ? code : 1);

/** The arguments behind the module. */
function words() {
  return process.argv.slice(3);
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
  const { say, ask } = globalThis;
  const init = { initMethod: url };
  return main(pr, { language: "Browser", init, say, ask, load, arguments: words });
}

/** Does to the page what it asked for. */
async function grant(wish) {
  if (wish === "close") {
    await page.close({ runBeforeUnload: false });
  } else if (wish === "crash") {
    const session = await page.context().newCDPSession(page);
    session.send("Page.crash").catch(() => {});
  } else {
    throw new Error(`nothing is known of ${wish}`);
  }
}
