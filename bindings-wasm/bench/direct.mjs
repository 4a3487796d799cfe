// A tab and a native rank, which it reaches without a relay, exchange tensors: this package and
// Node's beside a WebSocket in plain JavaScript to the same process. `node bench/direct.mjs`, after
// `cargo xtask wasm`, `cargo xtask node --release` and `cargo build --release -p polyrank`. Prints
// medians; the ratio is what counts.

import { once } from "node:events";

import { WebSocketServer } from "ws";

import { launchChromium } from "../../tests/javascript/chromium.mjs";
import { serve } from "../../tests/javascript/server.mjs";
import { startStore } from "../tests/store.mjs";
import { openPage } from "./page.mjs";
import { HEAD, SIZES, exchangesOf, line } from "./timed.js";

const CHUNK_BYTES = 64 << 10;
/** The tag of the messages that say when to send. */
const WORD = 1;

/** Sends `bytes` in chunks, as browsers like them. */
function sendAll(socket, bytes) {
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    socket.send(bytes.subarray(at, at + CHUNK_BYTES));
  }
}

/** Answers as many bytes as came, as soon as the first of them are there. */
function startRaw() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
  server.on("connection", (socket) => {
    let [expected, seen] = [0, 0];
    let answer = Buffer.alloc(0);
    socket.on("message", (data, isBinary) => {
      if (!isBinary) {
        expected = Number(data);
        answer = Buffer.alloc(expected, 2);
        return;
      }
      if (seen === 0) sendAll(socket, answer);
      seen = (seen + data.length) % expected;
    });
  });
  const url = () => `ws://127.0.0.1:${server.address().port}`;
  return once(server, "listening").then(() => ({ url: url(), stop: () => server.close() }));
}

/** Runs in a page. */
async function prepare({ url, rawUrl, WORD }) {
  const pr = await import("/bindings-wasm/js/index.js");
  const group = await pr.initProcessGroup({ initMethod: `${url}/?rank=0&world_size=2` });
  const socket = new WebSocket(rawUrl);
  socket.binaryType = "arraybuffer";
  await new Promise((done) => (socket.onopen = done));
  const chunkBytes = 64 << 10;
  globalThis.begin = (bytes) => socket.send(String(bytes));
  globalThis.exchanges = {
    raw: (mine, theirs) =>
      new Promise((done) => {
        let at = 0;
        socket.onmessage = ({ data }) => {
          theirs.set(new Uint8Array(data), at);
          at += data.byteLength;
          if (at === theirs.length) done();
        };
        for (let from = 0; from < mine.length; from += chunkBytes) {
          socket.send(mine.subarray(from, from + chunkBytes));
        }
      }),
    // The word has the other side send, as the first bytes do above.
    messages: (mine, theirs) => {
      const sent = [group.send([Uint8Array.of(1)], 1, WORD), group.send([mine], 1)];
      return Promise.all([group.recv([theirs], 1), ...sent]);
    },
  };
}

/** Runs in a page. */
async function measure({ bytes }) {
  const { timed } = await import("/bindings-wasm/bench/timed.js");
  globalThis.begin(bytes);
  return timed(globalThis.exchanges, bytes);
}

const servers = [startRaw(), serve(), startStore(), launchChromium()];
const [raw, server, store, browser] = await Promise.all(servers);
try {
  const page = await openPage(browser, server.origin);
  const pr = await import("../../bindings-node/js/index.js");
  const [group] = await Promise.all([
    pr.initProcessGroup({ initMethod: `${store.url}/?rank=1&world_size=2` }),
    page.evaluate(prepare, { url: store.url, rawUrl: raw.url, WORD }),
  ]);
  console.log(HEAD);
  for (const bytes of SIZES) {
    const times = page.evaluate(measure, { bytes });
    const [mine, theirs] = [new Uint8Array(bytes).fill(2), new Uint8Array(bytes)];
    for (let round = 0; round < exchangesOf(bytes); round += 1) {
      const received = group.recv([theirs], 0);
      await group.recv([new Uint8Array(1)], 0, WORD);
      await Promise.all([received, group.send([mine], 0)]);
    }
    console.log(line(bytes, await times));
  }
  const leave = () => import("/bindings-wasm/js/index.js").then((it) => it.destroyProcessGroup());
  await Promise.all([pr.destroyProcessGroup(), page.evaluate(leave)]);
} finally {
  await browser.close();
  store.stop();
  raw.stop();
  server.close();
}
