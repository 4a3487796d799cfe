// The package in Chromium: every case in a page, and again in a Worker.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { local } from "./cases/local.mjs";
import { memory } from "./cases/memory.mjs";
import { values } from "./cases/values.mjs";

const suites = { local, memory, values };

let server;
let browser;
let page;
const errors = [];

before(async () => {
  server = await serve();
  browser = await launchChromium();
  page = await browser.newPage();
  page.on("pageerror", (error) => errors.push(error.stack));
  page.on("console", (message) => {
    if (["warning", "error"].includes(message.type())) errors.push(message.text());
  });
  await page.goto(server.origin);
});

after(async () => {
  await browser?.close();
  server?.close();
});

function inPage({ file, suite, name }) {
  const native = "/bindings-wasm/js/runtime/native.js";
  return Promise.all([import("/bindings-wasm/js/index.js"), import(native), import(file)])
    .then(([pr, { native }, cases]) => cases[suite][name](pr, native))
    .then(() => null, (error) => String(error.stack ?? error));
}

function inWorker(told) {
  globalThis.worker ??= new Worker("/bindings-wasm/tests/worker.mjs", { type: "module" });
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
          const told = { file: `/bindings-wasm/tests/cases/${suite}.mjs`, suite, name };
          assert.equal(await page.evaluate(run, told), null);
          assert.deepEqual(errors.splice(0), []);
        });
      }
    }
  });
}
