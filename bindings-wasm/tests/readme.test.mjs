// The programs of the README do what it says, in Chromium.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { blocks, files } from "../../tests/javascript/readme.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { startStore } from "./store.mjs";

/** The programs that pages load, each with its number of tabs. */
const PROGRAMS = {
  "tab.js": 2,
  "team.js": 1,
  "workers.js": 1,
  "memory.js": 1,
  "grace.js": 1,
  "unsupported.js": 1,
};
/** What another program starts. */
const PARTS = ["rank.js", "worker.js"];

const all = await blocks(fileURLToPath(new URL("../README.md", import.meta.url)));
const sources = new Map(files(all));
let server;
let store;
let browser;

before(async () => {
  [server, store] = await Promise.all([serve(sources), startStore()]);
  browser = await launchChromium();
});

after(async () => {
  await browser?.close();
  store?.stop();
  server?.close();
});

/** What the README says that a program prints. */
function prints(name) {
  const at = all.findIndex(({ body }) => body === sources.get(name));
  return all.slice(at).find(({ language }) => language === "text").body.trim().split("\n");
}

/** Opens a page with the program; `said` gets what it writes. */
async function open(name, query, said) {
  const page = await browser.newPage();
  page.on("console", (message) => said(message.text()));
  page.on("pageerror", (error) => said(String(error.stack)));
  await page.goto(`${server.origin}/?${new URLSearchParams(query)}`);
  await page.addScriptTag({ type: "module", url: `/${name}` });
  return page;
}

test("every file of the README is run", () => {
  assert.deepEqual([...sources.keys()].sort(), [...Object.keys(PROGRAMS), ...PARTS].sort());
});

for (const [name, tabs] of Object.entries(PROGRAMS)) {
  test(name, { timeout: 120_000 }, async () => {
    const [lines, expected] = [[], prints(name)];
    const { promise, resolve } = deferred();
    const said = (line) => {
      if (lines.push(line) === expected.length) resolve();
    };
    const query = (rank) => ({ store: `${store.url}/`, worldSize: tabs, rank });
    const ranks = Array.from({ length: tabs }, (_, rank) => open(name, query(rank), said));
    const pages = await Promise.all(ranks);
    await promise;
    assert.deepEqual(lines.sort(), expected);
    await Promise.all(pages.map((page) => page.close()));
  });
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
