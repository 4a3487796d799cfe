// Ranks that meet over wss://: encrypted pages and a rank in Node, through a store's server with a
// certificate that this test has signed itself. Chromium and Node must trust it, or say no.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { startStore } from "../../bindings-wasm/tests/store.mjs";
import { launchChromium } from "./chromium.mjs";
import { ROOT, serve } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "polyrank-encrypted-"));
const [certificate, key] = ["certificate.pem", "key.pem"].map((name) => join(folder, name));
const PACKAGE = pathToFileURL(join(ROOT, "bindings-node/js/index.js")).href;

let server;
let store;
let browser;
let url;
const dialled = new Set();

before(async () => {
  execFileSync(
    "openssl",
    [
      ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
      ["-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=polyrank test"],
      ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
      // What a server shows must not be an authority, though it is the root here.
      ["-addext", "basicConstraints=critical,CA:FALSE"],
    ].flat(),
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  const tls = { cert: readFileSync(certificate), key: readFileSync(key) };
  const words = ["--certificate", certificate, "--key", key];
  [server, store, browser] = await Promise.all([
    serve(undefined, tls),
    startStore(words),
    launchChromium(),
  ]);
  url = store.urls.find((address) => address.startsWith("wss:"));
});

after(async () => {
  await browser?.close();
  store?.stop();
  server?.close();
  rmSync(folder, { recursive: true });
});

/** What every rank does: a tensor that is relayed in many frames, and each rank's objects. */
async function act({ pr, url, rank, size }) {
  const initMethod = `${url}/?rank=${rank}&world_size=${size}`;
  const group = await pr.initProcessGroup({ initMethod });
  const tensor = new Float32Array(100_003).map((_, at) => (at % 7) + rank);
  await group.allreduce(tensor);
  const ranks = (size * (size - 1)) / 2;
  const isRight = tensor.every((value, at) => value === size * (at % 7) + ranks);
  const objects = new Array(size).fill(null);
  await pr.allGatherObject(objects, `rank ${rank}`);
  await pr.destroyProcessGroup();
  return { isRight, objects };
}

async function inPage(rank, size) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  // Nothing goes another way, not even to Node, which listens without encryption.
  page.on("websocket", (socket) => dialled.add(new URL(socket.url()).protocol));
  await page.goto(server.origin);
  const told = JSON.stringify({ url, rank, size });
  return page.evaluate(
    `import("polyrank-web").then((pr) => (${act})({ pr, ...${told} }))`,
  ).finally(() => context.close());
}

/** What a process of Node says at its end that trusts the certificate, or does not. */
async function inNode(rank, size, isTrusted) {
  const told = JSON.stringify({ url, rank, size });
  const program = `
    const pr = await import(${JSON.stringify(PACKAGE)});
    const said = await (${act})({ pr, ...${told} }).catch(({ kind, message }) => {
      return { kind, message };
    });
    console.log(JSON.stringify(said));`;
  const env = isTrusted ? { ...process.env, SSL_CERT_FILE: certificate } : process.env;
  const words = ["--input-type=module", "--eval", program];
  const child = spawn(process.execPath, words, { env, stdio: ["ignore", "pipe", "inherit"] });
  const [said] = await Promise.all([text(child.stdout), once(child, "exit")]);
  return JSON.parse(said);
}

test("encrypted pages and Node reduce together", { timeout: 120_000 }, async () => {
  const told = await Promise.all([inPage(0, 3), inNode(1, 3, true), inPage(2, 3)]);
  const objects = ["rank 0", "rank 1", "rank 2"];
  for (const of of told) assert.deepEqual(of, { isRight: true, objects });
  assert.deepEqual([...dialled], ["wss:"]);
});

test("a certificate that nobody vouches for is refused", { timeout: 120_000 }, async () => {
  const native = await inNode(0, 1, false);
  assert.equal(native.kind, "Network", JSON.stringify(native));
  assert.ok(native.message.includes(url) && /certificate/i.test(native.message), native.message);

  // A page that is not encrypted may ask for wss:// too. Chromium does not tell it why it got none.
  const plain = await serve();
  const page = await browser.newPage();
  await page.goto(plain.origin);
  const error = await page.evaluate(`import("polyrank-web").then((pr) => {
    return pr.WebSocketStore.connect("${url}", { timeout: 1000 }).then(
      () => ({ message: "it connected" }),
      ({ kind, message }) => ({ kind, message }),
    );
  })`);
  await page.close();
  plain.close();
  assert.equal(error.kind, "Network", error.message);
  assert.ok(error.message.includes(url) && /certificate/i.test(error.message), error.message);
});
