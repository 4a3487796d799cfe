// The two servers that `cargo xtask site` starts, each on a port of its own, as fixtures: one pair
// for all tests of a worker. Knows nothing of what pages do.

import { spawn, type ChildProcess } from "node:child_process";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { test as base } from "@playwright/test";

const SITE = fileURLToPath(new URL("../.vitepress/dist", import.meta.url));
const DEBUG = fileURLToPath(new URL("../../target/debug/polyrank", import.meta.url));
const POLYRANK = process.env["POLYRANK"] ?? DEBUG;

const TYPES: Record<string, string> = {
  ".css": "text/css",
  ".csv": "text/csv",
  ".html": "text/html",
  ".js": "text/javascript",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".woff2": "font/woff2",
};

/** What every test of a page may use. */
export interface Servers {
  /** The built pages, `http://127.0.0.1:port`. */
  site: string;
  /** A store that no rank keeps, `ws://127.0.0.1:port/`. */
  store: string;
}

export const test = base.extend<object, Servers>({
  site: [
    async ({}, use) => {
      const server = await serve();
      await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
      server.closeAllConnections();
      server.close();
    },
    { scope: "worker" },
  ],
  store: [
    async ({}, use) => {
      const port = await freePort();
      const child = spawn(POLYRANK, ["store", "--host", "127.0.0.1", "--port", String(port)], {
        stdio: ["ignore", "ignore", "inherit"],
      });
      await answering(child, port);
      await use(`ws://127.0.0.1:${port}/`);
      child.kill();
    },
    { scope: "worker" },
  ],
});

export { expect } from "@playwright/test";

/** Serves the built pages. */
async function serve(): Promise<Server> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    void find(pathname).then((file) => {
      response.writeHead(file ? 200 : 404, {
        "content-type": TYPES[extname(file ?? "")] ?? "application/octet-stream",
      });
      if (file) {
        createReadStream(file).pipe(response);
      } else {
        response.end();
      }
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return server;
}

/** The file that a clean address names. */
async function find(pathname: string): Promise<string | null> {
  const path = join(SITE, normalize(pathname));
  for (const file of [path, `${path}.html`, join(path, "index.html")]) {
    if ((await stat(file).catch(() => null))?.isFile()) {
      return file;
    }
  }
  return null;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

/** Waits until somebody answers at the port. */
async function answering(child: ChildProcess, port: number): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) {
      throw new Error(`the store server has ended with ${child.exitCode}`);
    }
    const isOpen = await new Promise<boolean>((answer) => {
      const socket = connect(port, "127.0.0.1");
      socket.once("connect", () => (socket.destroy(), answer(true)));
      socket.once("error", () => setTimeout(answer, 50, false));
    });
    if (isOpen) {
      return;
    }
  }
}
