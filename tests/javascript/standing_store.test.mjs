// A store that stands serves one group after another under the same name: after ranks that left in
// order, ranks that were killed, and pages that were loaded again. Run by `node --test`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

import { startStore } from "../../bindings-wasm/tests/store.mjs";
import { findChromium, launchChromium } from "./chromium.mjs";
import { hasBrowserPackage } from "./jobs.mjs";
import { ROOT, serve } from "./server.mjs";

/** A rank in Node: it says the sum of all ranks' numbers and ends, or stays if told to. */
const NODE = `
const pr = await import("file://${join(ROOT, "bindings-node/js/index.js")}");
const [url, stays] = process.argv.slice(1);
await pr.initProcessGroup({ initMethod: url, timeout: 30000 });
const x = new Float64Array([pr.getRank() + 1]);
await pr.allReduce(x);
console.log(x[0]);
if (stays) await new Promise((done) => setTimeout(done, 1e9));
await pr.destroyProcessGroup();
`;

/** The same in Python. */
const PYTHON = `
import array, datetime, sys, time, urllib.parse
import polyrank
url, stays = sys.argv[1], sys.argv[2:]
where = urllib.parse.urlsplit(url)
limit = datetime.timedelta(seconds=30)
if where.scheme == "tcp":
    numbers = dict(urllib.parse.parse_qsl(where.query))
    store = polyrank.TCPStore(where.hostname, where.port, timeout=limit)
    polyrank.init_process_group(store=store, rank=int(numbers["rank"]), world_size=2, timeout=limit)
else:
    polyrank.init_process_group(init_method=url, timeout=limit)
x = array.array("d", [polyrank.get_rank() + 1])
polyrank.all_reduce(x)
print(int(x[0]), flush=True)
if stays:
    time.sleep(1e9)
polyrank.destroy_process_group()
`;

const LAUNCHER = join(process.env.POLYRANK_TARGET ?? join(ROOT, "target/debug"), "polyrank");
const PYTHON_PROGRAM = process.env.POLYRANK_PYTHON;
const commands = {
  Node: existsSync(join(ROOT, "bindings-node/polyrank.node")) && [
    process.execPath,
    "--input-type=module",
    "-e",
    NODE,
  ],
  Python: PYTHON_PROGRAM && [PYTHON_PROGRAM, "-c", PYTHON],
};
const missing =
  ["Node", "Python"].map((name) => !commands[name] && `no ${name} rank`).find(Boolean) ||
  (!findChromium() && "there is no Chromium") ||
  (!hasBrowserPackage() && "bindings-wasm is not built") ||
  false;

let store;
let server;
let browser;

before(async () => {
  if (missing) return;
  [store, server] = await Promise.all([startStore(), serve()]);
  browser = await launchChromium();
});

after(async () => {
  await browser?.close();
  server?.close();
  store?.stop();
});

/** Where rank `rank` of two joins, by `scheme`. */
function address(scheme, rank) {
  const url = store.urls.find((url) => url.startsWith(`${scheme}:`));
  return `${url.replace(/\/$/, "")}/?rank=${rank}&world_size=2`;
}

/** A rank of `language` at `url`: `{ sum, ended, kill }`. */
function start(language, url, ...words) {
  const [program, ...rest] = commands[language];
  const child = spawn(program, [...rest, url, ...words], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close").then(([code]) => code);
  const said = once(createInterface({ input: child.stdout }), "line").then(([line]) => line);
  const sum = Promise.race([said, ended.then((code) => `ended with ${code}`)]);
  return { sum, ended, kill: () => child.kill("SIGKILL") };
}

/** Two ranks that add up and leave. */
async function meet(scheme, languages) {
  const ranks = languages.map((language, rank) => start(language, address(scheme, rank)));
  assert.deepEqual(await Promise.all(ranks.map(({ sum }) => sum)), ["3", "3"]);
  assert.deepEqual(await Promise.all(ranks.map(({ ended }) => ended)), [0, 0]);
}

const pairs = [
  ["ws", "Node", "Node"],
  ["ws", "Python", "Python"],
  ["tcp", "Python", "Python"],
  ["ws", "Python", "Node"],
];
for (const [scheme, ...languages] of pairs) {
  const names = `${languages.join(" and ")} over ${scheme}`;
  test(`${names} meet again and again`, { skip: missing }, async () => {
    for (let time = 0; time < 3; time += 1) await meet(scheme, languages);
  });

  test(`${names} meet after ranks that were killed`, { skip: missing }, async () => {
    for (const killed of [[0, 1], [0], [1]]) {
      const ranks = languages.map((language, rank) =>
        start(language, address(scheme, rank), "stay"),
      );
      assert.deepEqual(await Promise.all(ranks.map(({ sum }) => sum)), ["3", "3"]);
      killed.forEach((rank) => ranks[rank].kill());
      await Promise.all(killed.map((rank) => ranks[rank].ended));
      // One that is left over would rightly be told from a rank that comes anew.
      ranks.forEach(({ kill }) => kill());
      await meet(scheme, languages);
    }
  });
}

/** What two launchers of one rank each say that share a port, and how they end. */
async function launchTwo(languages, ids) {
  const port = String(await freePort());
  const place = ["--master-addr", "127.0.0.1", "--master-port", port];
  const nodes = languages.map(async (language, node) => {
    const words = ["run", "--nnodes", "2", "--node-rank", String(node), ...place];
    const name = ids[node] === undefined ? [] : ["--run-id", ids[node]];
    const child = spawn(LAUNCHER, [...words, ...name, "-n", "1", ...commands[language], "env://"]);
    const said = [child.stdout, child.stderr].map(async (stream) => {
      let text = "";
      for await (const part of stream) text += part;
      return text;
    });
    const [code] = await once(child, "close");
    return { code, said: (await Promise.all(said)).join("") };
  });
  return Promise.all(nodes);
}

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return port;
}

/** How the second of two ranks that are of different runs is told of the first. */
const CAME_TO_OTHERS =
  /rank (?:0 of run 'A' came to group 'default_pg' of run 'B'|1 of run 'B' came .* of run 'A').*/;

for (const [, ...languages] of pairs.filter(([scheme]) => scheme === "ws")) {
  const names = languages.join(" and ");
  test(`runs of two names are told of each other: ${names}`, { skip: missing }, async () => {
    const told = await launchTwo(languages, ["A", "B"]);
    // Either may be the first to come; both hear of the other, in the same sentence.
    const [sentence] = told[0].said.match(CAME_TO_OTHERS) ?? [told[0].said];
    assert.match(sentence, CAME_TO_OTHERS);
    for (const { code, said } of told) {
      assert.notEqual(code, 0);
      assert.ok(said.includes(sentence), said);
    }
    for (const ids of [["A", "A"], []]) {
      for (const { code, said } of await launchTwo(languages, ids)) {
        assert.equal(code, 0, said);
        assert.match(said, /\b3\b/);
      }
    }
  });
}

/** Runs in the page: joins, adds up, and leaves if it is told to. */
async function add({ url, leaves }) {
  const pr = await import("polyrank-web");
  await pr.initProcessGroup({ initMethod: url, timeout: 30_000 });
  const x = new Float64Array([pr.getRank() + 1]);
  await pr.allReduce(x);
  if (leaves) await pr.destroyProcessGroup();
  return x[0];
}

test("a page that is loaded again is a new member", { skip: missing }, async () => {
  const page = await browser.newPage();
  await page.goto(server.origin);
  for (const leaves of [true, false, false, true]) {
    const other = start("Node", address("ws", 1), ...(leaves ? [] : ["stay"]));
    assert.equal(await page.evaluate(add, { url: address("ws", 0), leaves }), 3);
    assert.equal(await other.sum, "3");
    other.kill();
    await other.ended;
    await page.reload();
  }
  await page.close();
});

test("so are two pages that are loaded again in any order", { skip: missing }, async () => {
  const pages = await Promise.all([browser.newPage(), browser.newPage()]);
  await Promise.all(pages.map((page) => page.goto(server.origin)));
  for (const order of [[0, 1], [1, 0], [0, 1]]) {
    const sums = pages.map((page, rank) =>
      page.evaluate(add, { url: address("ws", rank), leaves: false }),
    );
    assert.deepEqual(await Promise.all(sums), [3, 3]);
    for (const at of order) await pages[at].reload();
  }
  await Promise.all(pages.map((page) => page.close()));
});
