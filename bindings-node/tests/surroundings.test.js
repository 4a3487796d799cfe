// What a build has, and which backend is recommended: in words, and true here.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import * as pr from "polyrank";

test("a build says what it has", async () => {
  const file = new URL("../package.json", import.meta.url);
  const { version } = JSON.parse(await readFile(file, "utf8"));
  const info = pr.buildInfo();
  assert.equal(info.version, version);
  assert.match(info.target, /^x86_64-linux/);
  assert.ok(info.features.includes("tcp"));
  for (const { name, unavailable } of info.backends) {
    assert.equal(unavailable ?? "", pr.backendUnavailableReason(name), name);
  }
  const tcp = info.backends.find(({ name }) => name === "tcp");
  assert.deepEqual([tcp.devices, tcp.takesCudaMemory], [["cpu", "cuda"], false]);
});

test("a backend is recommended that can be used, with the reason", () => {
  const { backend, reason } = pr.recommendBackend();
  for (const part of backend.split(",")) {
    assert.ok(pr.isBackendAvailable(part.split(":").at(-1)), backend);
  }
  assert.ok(reason.length > 20, reason);
});

test("a kind of device has its backend", () => {
  assert.deepEqual(["cpu", "cuda:1"].map(pr.getDefaultBackendForDevice), ["tcp", "nccl"]);
  for (const wrong of ["tpu", null]) {
    const refused = { kind: "InvalidArgument", message: /is not a device; expected one of cpu/ };
    assert.throws(() => pr.getDefaultBackendForDevice(wrong), refused);
  }
});
