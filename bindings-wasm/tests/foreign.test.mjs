// Pages whose store's address is somebody else's: a port that says nothing, garbage or too much, or
// a WebSocket that is not a store. Each must end in a typed error that names the address and what
// to do, within the limit of the call.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { WebSocketServer } from "ws";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";

/** Longer than the console is kept waiting, in one case; else just long enough. */
const [LONG_MS, SHORT_MS] = [4000, 1000];

let server;
let browser;
let page;
const said = [];

before(async () => {
  server = await serve();
});

// Chromium keeps a page's sockets back for seconds after a dozen that failed, whatever they led to:
// each test has a browser that has seen no failure yet.
beforeEach(async () => {
  browser = await launchChromium();
  page = await browser.newPage();
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  await page.goto(server.origin);
});

afterEach(() => browser?.close());

after(() => server?.close());

/** What a page hears that asks for a store at the address of `listener`. */
async function asked(listener, timeout) {
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const sockets = new Set();
  listener.on("connection", (socket) => sockets.add(socket.on("error", () => {})));
  const url = `ws://127.0.0.1:${listener.address().port}`;
  said.length = 0;
  const error = await page.evaluate(`import("polyrank-web").then((pr) => {
    return pr.WebSocketStore.connect("${url}", { timeout: ${timeout} }).then(
      () => ({ message: "it connected" }),
      ({ kind, message }) => ({ kind, message }),
    );
  })`);
  for (const socket of sockets) socket.destroy();
  listener.close();
  assert.equal(error.kind, "Network", error.message);
  assert.ok(error.message.includes(url), error.message);
  return error.message;
}

/** A server of plain connections. */
function plain(onConnection) {
  return createServer((socket) => onConnection(socket.on("error", () => {})));
}

/** A server that accepts every WebSocket. */
function webSocket(onConnection) {
  const listener = createHttpServer();
  new WebSocketServer({ server: listener }).on("connection", onConnection);
  return listener;
}

const toldWhatToDo =
  /cannot reach a store at ws:.*address right.*ALLOWED_ORIGINS.*PyTorch.*polyrank store/;

const strangers = {
  "says nothing": plain(() => {}),
  "hangs up, as a store of PyTorch does": plain((socket) => {
    socket.once("data", () => socket.end());
  }),
  "answers garbage": plain((socket) => socket.end(Buffer.alloc(4096, 0xa5))),
  "answers garbage for ever": plain((socket) => {
    const more = () => {
      socket.write(Buffer.alloc(65536, 0x41), (error) => error ?? setImmediate(more));
    };
    more();
  }),
  "speaks HTTP alone": createHttpServer((_, response) => response.writeHead(404).end("no")),
};

for (const [name, listener] of Object.entries(strangers)) {
  test(`a port that ${name} is named, and what to do`, { timeout: 60_000 }, async () => {
    assert.match(await asked(listener, SHORT_MS), toldWhatToDo);
  });
}

test("while it waits, the console tells for what", { timeout: 60_000 }, async () => {
  await asked(plain(() => {}), LONG_MS);
  const warnings = said.filter((line) => line.startsWith("warning: polyrank: no store"));
  assert.equal(warnings.length, 1, said.join("\n"));
  assert.match(warnings[0], /answered at ws:.* more.*PyTorch/);
});

test("a WebSocket that says nothing is not a store", { timeout: 60_000 }, async () => {
  assert.match(await asked(webSocket(() => {}), LONG_MS), /says nothing that a store would/);
});

test("what one attempt has shown, a later one does not hide", { timeout: 60_000 }, async () => {
  // It accepts the first WebSocket, drops it, and never answers again.
  const listener = createHttpServer();
  const sockets = new WebSocketServer({ noServer: true });
  let isFirst = true;
  listener.on("upgrade", (request, socket, head) => {
    socket.on("error", () => {});
    if (!isFirst) return socket.destroy();
    isFirst = false;
    return sockets.handleUpgrade(request, socket, head, (accepted) => accepted.terminate());
  });
  assert.match(await asked(listener, LONG_MS), /says nothing that a store would/);
});

test("a WebSocket that says something else is none immediately", { timeout: 60_000 }, async () => {
  for (const text of [Buffer.from([9, 9, 9]), Buffer.alloc(48, 2)]) {
    const chatty = webSocket((socket) => socket.send(text));
    assert.match(await asked(chatty, LONG_MS), /the server that answers there is not a store/);
  }
});

test("text is none either", { timeout: 60_000 }, async () => {
  const chatty = webSocket((socket) => socket.send("hello"));
  assert.match(await asked(chatty, LONG_MS), /text message/);
});

test("one that refuses is believed, and quoted", { timeout: 60_000 }, async () => {
  const strict = webSocket((socket) => socket.close(1008, "not for you"));
  assert.match(await asked(strict, LONG_MS), /closed the connection: not for you/);
});
