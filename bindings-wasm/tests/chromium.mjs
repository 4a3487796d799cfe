// A Chromium of this host without a window. Knows nothing of the tests.

import { existsSync } from "node:fs";

import { chromium } from "playwright-core";

const places = [
  process.env.POLYRANK_CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

/** Starts the browser; it reaches nothing but this host. */
export function launch() {
  const executablePath = places.find((place) => place !== undefined && existsSync(place));
  if (executablePath === undefined) {
    throw new Error("no Chromium: install it, or say in POLYRANK_CHROMIUM where it lies");
  }
  const args = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
  ];
  return chromium.launch({ executablePath, headless: true, args });
}

/** An open page of `server` whose console errors are collected in `errors`. */
export async function open(browser, server) {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.stack));
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  await page.goto(`${server.url}/page.html`);
  return { page, errors };
}
