// Serves the browser package and the tests' pages on loopback. Knows nothing of what they do.

import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { existsSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { extname, join, normalize, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the repository. */
export const ROOT = resolve(fileURLToPath(new URL("../..", import.meta.url)));
/** The only folders that are served. */
const SERVED = ["bindings-wasm", "tests"];
const TYPES = {
  ".csv": "text/csv",
  ".js": "text/javascript",
  ".json": "application/json",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
};

/**
 * Starts serving, `modules` at the root beside the folders: texts by their names. Encrypted with
 * `tls`, `{ cert, key }`; with `headers` in every answer. Gives the address and a way to stop.
 */
export async function serve(modules = new Map(), tls = undefined, headers = {}) {
  const listener = (request, response) => {
    response.setHeaders(new Map(Object.entries(headers)));
    answer(request, response, modules).catch((error) => {
      response.writeHead(500).end(String(error));
    });
  };
  const server = tls === undefined ? createServer(listener) : createSecureServer(tls, listener);
  await new Promise((done, failed) => {
    server.once("error", failed).listen(0, "127.0.0.1", done);
  });
  const { port } = server.address();
  const scheme = tls === undefined ? "http" : "https";
  return { origin: `${scheme}://127.0.0.1:${port}`, close: () => server.close() };
}

async function answer(request, response, modules) {
  const { pathname } = new URL(request.url, "http://localhost");
  if (pathname === "/") {
    const shown = page();
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(shown);
    return;
  }
  if (pathname === "/favicon.ico") {
    response.writeHead(204).end();
    return;
  }
  const path = normalize(decodeURIComponent(pathname)).slice(1);
  if (modules.has(path)) {
    response.writeHead(200, { "content-type": TYPES[".js"], "cache-control": "no-store" });
    response.end(resolved(modules.get(path)));
    return;
  }
  const type = TYPES[extname(path)];
  const file = join(ROOT, path);
  if (!type || !SERVED.includes(path.split(sep)[0]) || !existsSync(file)) {
    response.writeHead(404).end(`no ${pathname} here`);
    return;
  }
  response.writeHead(200, { "content-type": type, "cache-control": "no-store" });
  const content = await readFile(file);
  response.end(type === "text/javascript" ? resolved(content.toString()) : content);
}

/** A module whose imports are addresses: in a Worker, no import map says what a name is. */
function resolved(module) {
  const places = importMap();
  return module.replace(/(?<=\bfrom |\bimport\()"([^"]+)"/g, (all, name) => {
    return places[name] === undefined ? all : JSON.stringify(places[name]);
  });
}

/** An empty page in which the package can be imported by its name. */
function page() {
  const imports = JSON.stringify({ imports: importMap() }, null, 2);
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>polyrank rank</title>
<script type="importmap">${imports}</script></html>`;
}

/** Where the browser finds the package and what the package imports. */
function importMap() {
  const places = {};
  const folder = join(ROOT, "bindings-wasm");
  const description = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  for (const [name, target] of Object.entries(entries(description))) {
    places[join(description.name, name)] = `/bindings-wasm/${normalize(target)}`;
  }
  for (const name of Object.keys(description.dependencies ?? {})) {
    const home = [folder, join(ROOT, "tests")]
      .map((start) => join(start, "node_modules", name))
      .find(existsSync);
    if (!home) {
      throw new Error(`the package ${name} is not installed: run cargo xtask setup`);
    }
    const dependency = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
    const at = home.slice(ROOT.length).split(sep).join("/");
    for (const [entry, target] of Object.entries(entries(dependency))) {
      places[join(name, entry)] = `${at}/${normalize(target)}`;
    }
  }
  return places;
}

/** The entries of a package and the files that they are in a browser. */
function entries(description) {
  const exported = description.exports ?? { ".": description.module ?? description.main };
  const all = typeof exported === "string" ? { ".": exported } : exported;
  const target = (value) =>
    typeof value === "object" && value !== null
      ? target(value.browser ?? value.import ?? value.default)
      : value;
  // What a package has for types or for other platforms only is none of these.
  const files = Object.entries(all).filter(([name, value]) => {
    return !name.includes("*") && target(value) !== undefined;
  });
  return Object.fromEntries(files.map(([name, value]) => [name, target(value)]));
}
