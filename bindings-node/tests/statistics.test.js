// What groups have called, counted, and the same as OpenMetrics text.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";

test("calls, bytes and times are counted, and told as text", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "counted" });
  for (let call = 0; call < 40; call += 1) await group.allreduce(new Float32Array(3));
  const stats = group.stats();
  const { group: name, rank, globalRank, size, peers, slowestPeer } = stats;
  assert.deepEqual([name, rank, globalRank, size, peers, slowestPeer], [
    "counted",
    0,
    0,
    1,
    [],
    null,
  ]);
  const allreduce = stats.operations.find((operation) => operation.name === "allreduce");
  assert.deepEqual([allreduce.count, allreduce.bytes, allreduce.failed], [40, 480, 0]);
  assert.equal(allreduce.inFlight, 0);
  assert.ok(allreduce.p50Seconds <= allreduce.p99Seconds);
  assert.ok(allreduce.algorithmBandwidth >= 0);
  const text = pr.metrics();
  const labels = 'rank="0",group="counted",operation="allreduce"';
  assert.ok(text.includes(`polyrank_operations_total{${labels}} 40\n`), text);
  assert.ok(text.endsWith("# EOF\n"));
  await group.shutdown();
});

test("operations of a name are counted apart", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "named" });
  await group.allreduce(new Float32Array(3));
  await pr.recordComm("layer 1", () => group.allreduce(new Float32Array(3)));
  const { operations } = group.stats();
  const counts = operations.map(({ name, commName, count }) => [name, commName, count]);
  assert.deepEqual(counts, [["allreduce", null, 1], ["allreduce", "layer 1", 1]]);
  const labels = 'rank="0",group="named",operation="allreduce",comm_name="layer 1"';
  assert.ok(pr.metrics().includes(`polyrank_operations_total{${labels}} 1\n`));
  await group.shutdown();
});
