// Finds a Chromium on this machine and starts it without a window. Knows nothing of what is shown.
//
// `node chromium.mjs` prints its path; the exit code is 1 if there is none.

import { accessSync, constants, realpathSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const NAMES = [
  "chromium",
  "chromium-browser",
  "google-chrome-stable",
  "google-chrome",
  "chrome",
  "microsoft-edge",
];
const FOLDERS = ["/usr/bin", "/usr/local/bin", "/snap/bin", "/opt/google/chrome"];
const PROGRAMS = [
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The path of a browser: what the variable CHROMIUM names, or the first that is installed. */
export function findChromium() {
  const chosen = process.env.CHROMIUM;
  if (chosen) {
    return isProgram(chosen) ? chosen : undefined;
  }
  const folders = [...(process.env.PATH ?? "").split(delimiter).filter(Boolean), ...FOLDERS];
  const inFolders = NAMES.flatMap((name) => folders.map((folder) => join(folder, name)));
  return [...inFolders, ...PROGRAMS].find(isProgram);
}

/** Starts the browser; the promise is rejected where there is none. */
export async function launchChromium(options = {}) {
  const executablePath = findChromium();
  if (!executablePath) {
    throw new Error("there is no Chromium here: install one, or name it in CHROMIUM");
  }
  const { chromium } = await import("playwright-core");
  const args = [
    // As root, and in containers, Chromium's own sandbox cannot be set up; pages are our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    // Small containers have a small /dev/shm.
    "--disable-dev-shm-usage",
    // No page can ask another machine for anything.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
    ...(options.args ?? []),
  ];
  return chromium.launch({ executablePath, headless: true, ...options, args });
}

/** The numbers of a browser's processes; of one kind, as the ones that run pages: "renderer". */
export async function processesOf(browser, kind) {
  const devtools = await browser.newBrowserCDPSession();
  const { processInfo } = await devtools.send("SystemInfo.getProcessInfo");
  await devtools.detach();
  const wanted = processInfo.filter(({ type }) => kind === undefined || type === kind);
  return wanted.map(({ id }) => id);
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const found = findChromium();
  if (found) {
    console.log(found);
  } else {
    process.exitCode = 1;
  }
}
