// The package in Chromium: every case in a page, and again in a Worker.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { launch, open } from "./chromium.mjs";
import { local } from "./cases/local.mjs";
import { memory } from "./cases/memory.mjs";
import { serve } from "./serve.mjs";

const suites = { local, memory };

let server;
let browser;
let opened;

before(async () => {
  server = await serve();
  browser = await launch();
  opened = await open(browser, server);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

function inPage({ file, suite, name }) {
  return Promise.all([import("/js/index.js"), import(file)])
    .then(([pr, cases]) => cases[suite][name](pr))
    .then(() => null, (error) => String(error.stack ?? error));
}

function inWorker(told) {
  globalThis.worker ??= new Worker("/tests/worker.mjs", { type: "module" });
  return new Promise((resolve) => {
    globalThis.worker.onmessage = ({ data }) => resolve(data);
    globalThis.worker.onerror = (event) => resolve(event.message);
    globalThis.worker.postMessage(told);
  });
}

for (const [place, run] of Object.entries({ page: inPage, worker: inWorker })) {
  describe(place, () => {
    for (const [suite, cases] of Object.entries(suites)) {
      for (const name of Object.keys(cases)) {
        test(name, async () => {
          const told = { file: `/tests/cases/${suite}.mjs`, suite, name };
          assert.equal(await opened.page.evaluate(run, told), null);
          assert.deepEqual(opened.errors.splice(0), []);
        });
      }
    }
  });
}
