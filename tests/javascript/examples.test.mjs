// Every JavaScript and TypeScript example of the READMEs and of the site is right for the compiler
// at its strictest, and runs: those of Node under the launcher, those of browsers in Chromium. The
// files of the packages' READMEs are run by the packages' own tests, with what they print; examples
// of CUDA devices are only compiled here.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { startStore } from "../../bindings-wasm/tests/store.mjs";
import { launchChromium } from "./chromium.mjs";
import { examples, workshop } from "./examples.mjs";
import { Job } from "./jobs.mjs";
import { ROOT, serve } from "./server.mjs";

const COMPILER = join(ROOT, "bindings-node/node_modules/typescript/bin/tsc");
/** The store that examples name. */
const STORE = "ws://127.0.0.1:29500/";

const all = await examples();
const toRun = all.filter((example) => !example.isNamed && !example.isOfDevice);
let place;
let store;

before(async () => {
  [place, store] = await Promise.all([workshop(), startStore()]);
  const pr = await import("../../bindings-node/js/index.js");
  const client = await pr.WebSocketStore.connect(store.url);
  await client.set("ready", "");
  for (const example of all) {
    // With its slash, as the examples have it: a path may follow.
    const text = example.program().replaceAll(STORE, new URL(store.url).href);
    await writeFile(join(place.folder, `${example.file}.ts`), text);
  }
});

after(async () => {
  store?.stop();
  await place?.remove();
});

test("there are examples of each kind", () => {
  assert.ok(all.length > 20, `${all.length} examples`);
  assert.ok(toRun.some(({ isOfBrowser }) => isOfBrowser));
  assert.ok(toRun.some(({ isWhole }) => !isWhole));
});

test("all examples compile", async () => {
  const compiled = promisify(execFile)(process.execPath, [COMPILER, "--project", place.folder]);
  await compiled.catch((error) => assert.fail(error.stdout || error.message));
});

for (const example of toRun.filter(({ isOfBrowser }) => !isOfBrowser)) {
  test(`${example.place} runs on two ranks`, async () => {
    const job = new Job([["-n", "2", "node", join(place.folder, "out", `${example.file}.js`)]]);
    assert.equal(await job.ended, 0, job.lines.join("\n"));
  });
}

for (const example of toRun.filter(({ isOfBrowser }) => isOfBrowser)) {
  test(`${example.place} runs in a page beside three ranks of Node`, async () => {
    const [first] = toRun.filter(({ isOfBrowser, isWhole }) => isWhole && !isOfBrowser);
    const others = ["-n", "3", "node", join(place.folder, "out", `${first.file}.js`)];
    const job = new Job([others], 1);
    const [, url] = await job.line(/rank 3 joins from elsewhere: (\S+)/);
    const address = new URL(url);
    address.searchParams.delete("rank");
    address.searchParams.delete("world_size");
    const text = example.program().replaceAll(STORE, address.href);
    const server = await serve(new Map([["example.js", text]]));
    const browser = await launchChromium();
    try {
      const page = await browser.newPage();
      const errors = [];
      page.on("pageerror", (error) => errors.push(error.stack));
      await page.goto(server.origin);
      await page.addScriptTag({ type: "module", url: "/example.js" });
      assert.equal(await job.ended, 0, [...job.lines, ...errors].join("\n"));
    } finally {
      await browser.close();
      server.close();
      await job.kill();
    }
  });
}
