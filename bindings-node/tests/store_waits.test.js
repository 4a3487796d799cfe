// Who waits long for a key of a store is told which one nobody has set. Python's tests have each
// kind of store; here it is seen that asynchronous calls are told of, too, several at a time.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";

const PACKAGE = new URL("../js/index.js", import.meta.url).href;

test("several waits of one thread are told of, each by its own keys", () => {
  const program = `
    import * as pr from ${JSON.stringify(PACKAGE)};
    const options = { isMaster: true, waitForWorkers: false };
    const server = await pr.TCPStore.connect("127.0.0.1", 0, options);
    const hash = new pr.HashStore();
    await hash.set("here", "1");
    const waits = [server.wait(["a"], 700), hash.wait(["here", "b"], 700)];
    for (const ended of await Promise.allSettled(waits)) console.log(ended.reason.name);
  `;
  const env = { ...process.env, POLYRANK_STALL_REPORT: "0.2" };
  const words = ["--input-type=module", "-e", program];
  const ended = spawnSync(process.execPath, words, { env, encoding: "utf8" });
  assert.equal(ended.stdout, "StoreTimeoutError\nStoreTimeoutError\n", ended.stderr);
  for (const [client, missing] of [
    ["a client of the store at 127\\.0\\.0\\.1:\\d+ that needs 'a'", "'a'"],
    ["a client of HashStore\\(\\) that needs 'here', 'b'", "'b'"],
  ]) {
    const told = `polyrank: ${client} has waited for [\\d.]+ s; nobody has set ${missing}\\n`;
    assert.match(ended.stderr, new RegExp(told, "u"));
    assert.match(ended.stderr, new RegExp(`polyrank: ${client} waits no longer, after `, "u"));
  }
});
