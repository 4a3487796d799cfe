// What strangers may send to a running job's ports: that connection ends with a reason, and the job
// goes on. Run by `node --test`.

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { findChromium } from "./chromium.mjs";
import { Job, listeningPorts, residentKilobytes, roundsIn } from "./jobs.mjs";

const PATIENCE_MS = 15_000;
/** One more than any packet may have. */
const TOO_LONG = 24 + (64 << 10) + 128 + 1;
/** Of the sessions that ranks speak. */
const SESSION_VERSION = 2;
const HEAD =
  "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

let job;
let ports;
let processes;

before(async () => {
  const languages = ["Rust", "Python", "Node"].map(roundsIn).filter(Boolean);
  const browser = findChromium() && roundsIn("Browser");
  job = new Job(browser ? [...languages, browser] : languages);
  processes = [];
  for (let rank = 0; rank < languages.length; rank += 1) {
    const [, pid] = await job.line(new RegExp(`^\\[rank ${rank}\\] .* is process (\\d+)`));
    processes.push(Number(pid));
  }
  await job.goesOn();
  ports = processes.flatMap(listeningPorts);
  if (!browser) {
    // Nobody is expected at the ranks' own ports; the store's is the first of rank 0.
    ports = await answering(ports);
  }
  assert.ok(ports.length > (browser ? languages.length : 0), `ports ${ports}`);
});

/** The ports that answer WebSockets. */
async function answering(all) {
  const opened = await Promise.allSettled(all.map((port) => open(port)));
  opened.forEach(({ value }) => value?.terminate());
  return all.filter((_, at) => opened[at].status === "fulfilled");
}

after(async () => {
  await job.goesOn();
  assert.equal(await job.stop(), 0, job.lines.join("\n"));
});

/** Runs `attack` on every port; the job goes on each time. */
function attacks(name, attack) {
  test(name, async () => {
    for (const port of ports) {
      await attack(port);
      await job.goesOn();
    }
  });
}

/** A WebSocket that is open. */
async function open(port, options = {}) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, options);
  await once(socket, "open", { signal: AbortSignal.timeout(PATIENCE_MS) });
  return socket;
}

/** The code and reason with which the other side closes. */
async function closed(socket) {
  socket.on("error", () => {});
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const [code, reason] = await once(socket, "close", { signal });
  return { code, reason: reason.toString() };
}

/** The greeting of a session, with a token of somebody's. */
function hello(token) {
  const packet = Buffer.alloc(40);
  packet.writeUInt8(1, 0);
  packet.writeUInt32LE(SESSION_VERSION, 4);
  token.copy(packet, 8);
  packet.writeUInt32LE(1 << 20, 32);
  return packet;
}

/** Waits until a bare socket is closed, in whatever way. */
function isClosed(socket) {
  return new Promise((done, failed) => {
    const timer = setTimeout(failed, PATIENCE_MS, new Error("the connection stays open"));
    socket.once("close", () => done(clearTimeout(timer)));
  });
}

/** A bare socket that has sent these bytes. */
async function bare(port, bytes) {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  await once(socket, "connect", { signal: AbortSignal.timeout(PATIENCE_MS) });
  socket.write(bytes);
  return socket;
}

/** A bare socket whose upgrade was accepted. */
async function upgraded(port) {
  const socket = await bare(port, `${HEAD}\r\n`);
  const [said] = await once(socket, "data", { signal: AbortSignal.timeout(PATIENCE_MS) });
  assert.match(said.toString("latin1"), /^HTTP\/1\.1 101 /);
  return socket;
}

/** What is answered to these bytes until the connection is closed. */
async function answer(port, bytes) {
  const socket = await bare(port, bytes);
  const pieces = [];
  socket.on("data", (piece) => pieces.push(piece));
  await isClosed(socket);
  return Buffer.concat(pieces).toString("latin1");
}

attacks("a text message closes with 1003 and a reason", async (port) => {
  const socket = await open(port);
  socket.send("hello");
  const { code, reason } = await closed(socket);
  assert.equal(code, 1003);
  assert.notEqual(reason, "");
});

attacks("a message that is too long closes with 1009 and a reason", async (port) => {
  for (const length of [TOO_LONG, 8 << 20]) {
    const socket = await open(port);
    socket.send(Buffer.alloc(length));
    const { code, reason } = await closed(socket);
    assert.equal(code, 1009, `port ${ports.indexOf(port)} of ${ports}, ${length} bytes`);
    assert.notEqual(reason, "");
  }
});

attacks("a page of another origin gets 403, which names the setting", async (port) => {
  const origin = "Origin: https://example.com\r\n\r\n";
  const said = await answer(port, HEAD + origin);
  assert.match(said, /^HTTP\/1\.1 403 /);
  assert.match(said, /POLYRANK_ALLOWED_ORIGINS/);
});

attacks("a page of this host is let in", async (port) => {
  for (const origin of ["http://localhost:8080", "http://127.0.0.1", "https://[::1]:1"]) {
    const socket = await open(port, { origin });
    socket.close();
    await closed(socket);
  }
});

attacks("a session that nobody knows closes with 1008 and a reason", async (port) => {
  const socket = await open(port);
  socket.send(hello(randomBytes(16)));
  const { code, reason } = await closed(socket);
  assert.equal(code, 1008);
  assert.doesNotMatch(reason, /version/);
  assert.notEqual(reason, "");
});

attacks("a session of another version closes with 1008 and the version", async (port) => {
  const socket = await open(port);
  const packet = hello(Buffer.alloc(16));
  packet.writeUInt32LE(SESSION_VERSION - 1, 4);
  socket.send(packet);
  const { code, reason } = await closed(socket);
  assert.equal(code, 1008);
  assert.match(reason, /version 1 .* 2$/);
});

attacks("a packet that is cut off closes with 1002 and a reason", async (port) => {
  for (const bytes of [hello(Buffer.alloc(16)).subarray(0, 3), Buffer.alloc(0), randomBytes(100)]) {
    const socket = await open(port);
    socket.send(bytes);
    const { code, reason } = await closed(socket);
    assert.equal(code, 1002);
    assert.notEqual(reason, "");
  }
});

attacks("a frame that is not masked, and one of a made-up kind, close", async (port) => {
  for (const frame of [[0x82, 0x01, 0x00], [0x83, 0x80, 0, 0, 0, 0]]) {
    const socket = await upgraded(port);
    socket.resume().write(Buffer.from(frame));
    await isClosed(socket);
  }
});

attacks("a socket that ends in the middle of a frame harms nobody", async (port) => {
  const socket = await upgraded(port);
  socket.write(Buffer.from([0x82, 0xfe, 0xff, 0xff, 1]), () => socket.resetAndDestroy());
  await isClosed(socket);
});

attacks("a request without end closes", async (port) => {
  const said = await answer(port, HEAD + `X: ${"x".repeat(1 << 20)}`);
  assert.doesNotMatch(said, /^HTTP\/1\.1 101 /);
});

attacks("bytes of no protocol close", async (port) => {
  await answer(port, randomBytes(1 << 16));
  await answer(port, "POST / HTTP/1.1\r\n\r\n");
});

attacks("sockets that say nothing, or half of it, cost little and stop nobody", async (port) => {
  const before = processes.map(residentKilobytes);
  const sockets = [];
  for (let index = 0; index < 50; index += 1) {
    sockets.push(await bare(port, ["", "G", HEAD, `${HEAD}\r\n`][index % 4]));
  }
  await job.goesOn();
  const grown = processes.map((pid, rank) => residentKilobytes(pid) - before[rank]);
  assert.ok(Math.max(...grown) < 32 << 10, `${grown} KiB more`);
  sockets.forEach((socket) => socket.destroy());
});
