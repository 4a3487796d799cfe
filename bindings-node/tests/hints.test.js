// Hints of a group, and what is done with a group that was destroyed.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pr from "polyrank";

/** A number that bf16 does not keep. */
const FINE = 1 + 1 / 512;

const summed = async (group) => {
  const tensor = new Float32Array(3).fill(FINE);
  await group.allreduce(tensor);
  return [...tensor];
};

test("a hint holds for what does not say otherwise", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
  assert.deepEqual(group.hints, { compress: null });
  assert.deepEqual(await summed(group), [FINE, FINE, FINE]);
  group.setHints({ compress: "bf16" });
  assert.deepEqual(group.hints, { compress: "bf16" });
  assert.deepEqual(await summed(group), [1, 1, 1]);
  const whole = BigInt64Array.of(2n ** 40n + 1n);
  await group.allreduce(whole);
  assert.equal(whole[0], 2n ** 40n + 1n);
  const wrong = () => group.setHints({ compress: "f8" });
  assert.throws(wrong, /'bf16', 'f16', 'int8' or 'none', not 'f8'/u);
  assert.throws(() => group.setHints({ compres: "bf16" }), /compres/u);
  const asItIs = Float32Array.of(FINE);
  await group.allreduce([asItIs], { compress: "none" });
  assert.deepEqual([...asItIs], [FINE]);
  const kept = group.hints;
  group.setHints({});
  group.setHints(kept);
  assert.deepEqual(await summed(group), [1, 1, 1]);
  group.setHints({});
  assert.deepEqual(await summed(group), [FINE, FINE, FINE]);
  await group.shutdown();
});

test("arrays of integers stand for lists", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
  const given = Float32Array.of(1, 2, 3, 4);
  for (const Type of [Int8Array, Uint8Array, Uint16Array, Int32Array, BigInt64Array]) {
    const size = Type === BigInt64Array ? Type.of(4n) : Type.of(4);
    const rank = Type === BigInt64Array ? Type.of(0n) : Type.of(0);
    const gathered = new Float32Array(4);
    await group.allGatherV(gathered, given, size);
    assert.deepEqual(gathered, given);
    const exchanged = new Float32Array(4);
    const sizes = { outputSplitSizes: size, inputSplitSizes: size };
    await group.allToAllSingle(exchanged, given, sizes);
    assert.deepEqual(exchanged, given);
    const pair = Type === BigInt64Array ? Type.of(0n, 0n) : Type.of(0, 0);
    const permuted = new Float32Array(4);
    await group.ppermute(permuted, given, [pair]);
    assert.deepEqual(permuted, given);
    const child = await group.splitGroup(rank);
    assert.deepEqual(child.ranks(), [0]);
    await child.shutdown();
    const grid = await group.createCart(Type === BigInt64Array ? Type.of(1n) : Type.of(1));
    assert.equal(grid.rankAt(rank), 0);
  }
  const none = new Float32Array(0);
  const wrong = /Split sizes/u;
  assert.throws(() => group.allGatherV(none, none, Int32Array.of(9)), wrong);
  assert.throws(() => group.allGatherV(given, given, Float64Array.of(1.5)), /outputSplitSizes/u);
  await group.shutdown();
});

test("members that are replaced may bring hints", async () => {
  const options = { groupName: "hinted", enableReconfigure: true };
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, options);
  const handles = () => [group.getReconfigureHandle()];
  await group.reconfigure({ uuid: 1, handles: handles(), hints: { compress: "bf16" } });
  assert.deepEqual(await summed(group), [1, 1, 1]);
  await group.reconfigure({ uuid: 2, handles: handles() });
  assert.deepEqual(group.hints, { compress: "bf16" });
  await group.shutdown();
});

test("a group that was destroyed is refused", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1, { groupName: "over" });
  await pr.withProcessGroup(group, async () => {
    assert.equal(pr.currentProcessGroup(), group);
    await group.shutdown();
    assert.throws(() => pr.currentProcessGroup(), pr.InvalidGroupError);
  });
  await assert.rejects(pr.abortProcessGroup(group), pr.InvalidGroupError);
  const calls = [
    () => group.setTimeout(5),
    () => pr.setTimeout(5, group),
    () => group.setHints({}),
    () => group.revoke(),
    () => group.registerPreHook(0, () => {}),
    () => group.registerPostHook(0, () => {}),
    () => group.registerCompletionHook(0, () => {}),
    () => group.registerAbortHook(0, () => {}),
    () => pr.withProcessGroup(group, () => {}),
  ];
  for (const call of calls) {
    assert.throws(call, (error) => {
      assert.ok(error instanceof pr.InvalidGroupError, `${call}: ${error}`);
      return /'over' was destroyed/u.test(error.message);
    });
  }
});

test("the name of a group that lives is refused", async () => {
  const group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
  const child = await group.splitGroup([0], { groupName: "child" });
  for (const name of ["child", "group"]) {
    await assert.rejects(child.splitGroup([0], { groupName: name }), pr.DuplicateGroupError);
  }
  await child.shutdown();
  await group.shutdown();
});
