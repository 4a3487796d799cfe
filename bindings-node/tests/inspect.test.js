// What Node shows of objects: what a person wants to know of them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import * as pr from "polyrank";

test("stores, groups and tensors say what they are", async () => {
  const store = new pr.HashStore();
  assert.equal(inspect(store), "HashStore()");
  assert.equal(String(store), "HashStore()");
  const prefixed = new pr.PrefixStore("a", store);
  assert.equal(inspect(prefixed), "PrefixStore('a', HashStore())");
  const [zero, one] = await Promise.all(
    [0, 1].map((rank) => pr.ProcessGroup.join(store, rank, 2, { groupName: "pair" })),
  );
  assert.equal(inspect(one), "ProcessGroup(pair, rank 1 of 2, tcp)");
  assert.equal(inspect({ zero }), "{ zero: ProcessGroup(pair, rank 0 of 2, tcp) }");
  assert.equal(inspect(pr.alloc("f32", [2, 3])), "Tensor(f32, [2, 3])");
  assert.equal(inspect(pr.NON_GROUP_MEMBER), "NonGroupMember()");
  const server = await pr.TCPStore.connect("127.0.0.1", 0, { isMaster: true });
  const shown = `TCPStore(127.0.0.1:${server.port})`;
  assert.equal(inspect(server), shown);
  const clone = await server.clone();
  assert.equal(inspect(clone), shown);
  assert.ok(clone instanceof pr.TCPStore && clone.port === server.port);

  const work = zero.allreduce(Float32Array.of(1));
  assert.match(inspect(work), /^Work\(allreduce #1 of pair, in flight, \d+ ms\)$/);
  await one.allreduce(Float32Array.of(1));
  await work;
  assert.match(inspect(work), /^Work\(allreduce #1 of pair, complete, \d+ ms\)$/);
  assert.equal(`${work}`, inspect(work));
  const left = zero.allreduce(Float32Array.of(1));
  one.abort();
  await assert.rejects(Promise.resolve(left));
  assert.match(inspect(left), /^Work\(allreduce #2 of pair, failed, \d+ ms: .*aborted.*\)$/);
  const prepared = zero.prepareAllreduce(Float32Array.of(1, 2));
  assert.equal(inspect(prepared), "PreparedOperation(allreduce of 2 f32 in pair)");
  assert.equal(String(prepared), inspect(prepared));
  await Promise.all([zero.shutdown(), one.shutdown()]);
  assert.equal(inspect(one), "ProcessGroup(pair, rank 1 of 2, tcp, left)");
});

test("the store of a group is shown as what it is", async () => {
  const server = await pr.TCPStore.connect("127.0.0.1", 0, { isMaster: true });
  const group = await pr.initProcessGroup({ store: server, rank: 0, worldSize: 1 });
  const store = group.getGroupStore();
  const address = `TCPStore(127.0.0.1:${server.port})`;
  assert.match(inspect(store), /^PrefixStore\('.*default_pg.*', TCPStore\(127\.0\.0\.1:\d+\)/);
  assert.ok(inspect(store).includes(address));
  await pr.destroyProcessGroup();
  assert.equal(inspect(store), "Store(of default_pg, left)");
});
