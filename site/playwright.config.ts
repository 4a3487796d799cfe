// How the tests run: pure code in this process, pages in the Chromium of this machine, and servers
// of our own on free ports.

import { defineConfig } from "@playwright/test";
import { findChromium } from "../tests/javascript/chromium.mjs";

const executablePath = findChromium();
if (!executablePath) {
  throw new Error("there is no Chromium here: install one, or name it in CHROMIUM");
}

export default defineConfig({
  testDir: "tests",
  outputDir: "../target/site-tests",
  // Each test has its own rooms, but the browser and two cores are shared.
  workers: 1,
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [["list"]],
  forbidOnly: true,
  use: {
    browserName: "chromium",
    launchOptions: {
      executablePath,
      args: [
        // As root, and in containers, Chromium's own sandbox cannot be set up; pages are our own.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        // No page can ask another machine for anything.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
      ],
    },
    viewport: { width: 1280, height: 800 },
    trace: "off",
  },
});
