// What the other ranks see of a tab that is closed, killed or suspended in the middle of an
// operation, alone or with its whole browser. Run by `node --test`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as after } from "node:timers/promises";
import { findChromium, launchChromium, processesOf } from "./chromium.mjs";
import { Job, hasBrowserPackage, roundsIn } from "./jobs.mjs";
import { serve } from "./server.mjs";

const SEEN_WITHIN_MS = 2000;
const SUSPENDED_MS = 4000;

const missing =
  (!findChromium() && "there is no Chromium") ||
  (!hasBrowserPackage() && "bindings-wasm is not built") ||
  ["Rust", "Python", "Node"].map((name) => !roundsIn(name) && `no ${name} rank`).find(Boolean) ||
  false;

/** A job of a Rust, a Python and a Node rank, and a tab as its last; `act` is done to the tab. */
async function withTab(act) {
  const job = new Job(["Rust", "Python", "Node"].map(roundsIn), 1);
  const server = await serve();
  const browser = await launchChromium();
  try {
    const [, url] = await job.line(/rank 3 joins from elsewhere: (\S+)/);
    const page = await browser.newPage();
    const tab = { page, browser, said: [] };
    await page.exposeFunction("say", (line) => tab.said.push(line));
    await page.goto(server.origin);
    tab.ended = page.evaluate(join, url).catch((error) => error);
    await job.goesOn();
    await act(job, tab);
  } finally {
    await browser.close().catch(() => {});
    server.close();
    await job.kill();
  }
}

/** Runs in the page. */
async function join(url) {
  const pr = await import("polyrank-web");
  const { main } = await import("/tests/rounds/run.mjs");
  return main(pr, { language: "Browser", init: { initMethod: url }, say: globalThis.say });
}

/** Every rank but the tab raises the error that names it, soon enough. */
async function allNameTheTab(context, job, since) {
  for (const language of ["Rust", "Python", "Node"]) {
    const line = new RegExp(`${language} rank \\d: (\\w+) of (\\S+) at (\\d+)`);
    const [, kind, culprit, at] = await job.line(line);
    assert.match(kind, /^RankFailed/);
    assert.equal(culprit, "3");
    const took = Number(at) - since;
    context.diagnostic(`${language}: ${took} ms`);
    assert.ok(took < SEEN_WITHIN_MS, `${language} took ${took} ms`);
  }
}

test("a tab that is closed is named by every other rank within 2 s", { skip: missing }, (context) =>
  withTab(async (job, { page }) => {
    const since = Date.now();
    await page.close();
    await allNameTheTab(context, job, since);
  }),
);

test("so is a tab that leaves the page", { skip: missing }, (context) =>
  withTab(async (job, { page }) => {
    const since = Date.now();
    await page.goto("about:blank");
    await allNameTheTab(context, job, since);
  }),
);

test("so is a tab whose process dies", { skip: missing }, (context) =>
  withTab(async (job, { page }) => {
    const devtools = await page.context().newCDPSession(page);
    const since = Date.now();
    devtools.send("Page.crash").catch(() => {});
    await allNameTheTab(context, job, since);
  }),
);

test("so is a tab whose whole browser is killed", { skip: missing }, (context) =>
  withTab(async (job, { browser }) => {
    const processes = await processesOf(browser);
    const since = Date.now();
    processes.forEach((number) => signal(number, "SIGKILL"));
    await allNameTheTab(context, job, since);
  }),
);

/**
 * Whatever holds a tab up for a while: nobody fails, and all go on to a good end. Meanwhile the
 * others wait for it, unless `standsStill` says that it may go on.
 */
function waitedFor(name, suspend, standsStill = true) {
  test(`a tab ${name} for less than the timeout is waited for`, { skip: missing }, () =>
    withTab(async (job, tab) => {
      const goOn = await suspend(tab);
      // What was under way may still be told; then nobody goes on, and nobody fails.
      const stopped = await job.quiet(standsStill ? SUSPENDED_MS : 0);
      await after(SUSPENDED_MS);
      const rounds = job.lines.slice(stopped).filter((line) => /^\[rank 0\].*round/.test(line));
      assert.ok(!standsStill || rounds.length <= 1, job.lines.slice(stopped).join("\n"));
      assert.ok(!job.lines.some((line) => / at \d+: /.test(line)), job.lines.join("\n"));
      await goOn();
      await job.goesOn();
      assert.equal(await job.stop(), 0, job.lines.join("\n"));
      assert.equal(await tab.ended, 0, tab.said.join("\n"));
    }),
  );
}

waitedFor("that stands in the debugger", async ({ page }) => {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Debugger.enable");
  await devtools.send("Debugger.pause");
  return () => devtools.send("Debugger.resume");
});

// Chromium may let a page that has WebSockets go on even then.
const freezes = async ({ page }) => {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
  return () => devtools.send("Page.setWebLifecycleState", { state: "active" });
};
waitedFor("that the browser froze", freezes, false);

// As a system does with a tab in the background that it takes the processor from: the page stands
// still, while the browser goes on and answers the server's pings for it.
waitedFor("that is suspended", ({ browser }) => stop(browser, "renderer"));

waitedFor("whose whole browser is stopped", ({ browser }) => stop(browser));

/** Stops processes of a browser; what lets them go on. */
async function stop(browser, kind) {
  const processes = await processesOf(browser, kind);
  assert.ok(processes.length > 0, `no process is a ${kind}`);
  processes.forEach((number) => signal(number, "SIGSTOP"));
  return () => processes.forEach((number) => signal(number, "SIGCONT"));
}

/** Signals a process, which may have ended with another one. */
function signal(number, name) {
  try {
    process.kill(number, name);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}
