// The package as a web server gives it to browsers: its files, and empty pages that load it. Knows
// nothing of the tests.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
};
const page = "<!doctype html><link rel=icon href=data:><title>polyrank</title>";

/** Browsers resolve no names of packages; in workers, no import map says where they lie. */
function resolved(text) {
  return text.replaceAll('from "cborg"', 'from "/node_modules/cborg/cborg.js"');
}

/** Serves on a free port of this host: `{ url, close }`. */
export async function serve() {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    try {
      const place = new URL(`.${pathname}`, root);
      if (!place.href.startsWith(root.href)) throw new Error("outside");
      const isPage = pathname === "/page.html";
      const content = isPage ? page : await readFile(fileURLToPath(place));
      const type = types[extname(pathname)] ?? "application/octet-stream";
      response.setHeader("content-type", type);
      response.end(type === "text/javascript" ? resolved(content.toString()) : content);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}
