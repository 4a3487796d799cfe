// Errors: their classes and what they say; ranks that die, come late or disagree.

import assert from "node:assert/strict";
import { test } from "node:test";

import { onRanks, scenarios, startRanks } from "./support/ranks.js";

const SCENARIOS = scenarios("errors");

test("wrong arguments throw at the call, as they do in every language", async () => {
  const [got] = await onRanks(1, SCENARIOS, "wrongArguments");
  const expected = {
    form: ["InvalidType", "(tensor: Tensor, options?: { op?: ReduceOp, timeout?: number })"],
    noTensor: ["InvalidType", "no overload takes (string). Accepted forms:"],
    nothing: ["InvalidType", "argument 'tensors' is missing"],
    unknownOption: ["InvalidType", "there is no argument 'nonsense'"],
    wrongOption: ["InvalidType", "option 'reduceOp' must be ReduceOp, not string"],
    root: ["InvalidArgument", "root must be a rank from 0 to 0, got 7"],
    negative: ["InvalidArgument", "must not be negative"],
    timeout: ["InvalidArgument", "milliseconds that is not negative"],
    endless: ["InvalidArgument", "milliseconds that is not negative, not NaN"],
    fraction: ["InvalidType", "argument 'src' must be an integer, not 0.5"],
    dtype: ["UnsupportedDType", "BAND is not defined for f32"],
    premul: ["InvalidType", "premulSum(factor)"],
    shared: ["InvalidArgument", "expected 1 output tensors"],
    peer: ["InvalidArgument", "send: destination rank must be from 0 to 0, got 1"],
    uninitialized: ["NotInitialized", "make sure to call initProcessGroup."],
    key: ["InvalidType", "argument 'key' must be string, not number"],
    store: ["InvalidType", "argument 'store' must be Store"],
    numbers: ["InvalidType", "not number. A Tensor: a typed array, a DataView, or"],
    size: ["InvalidArgument", "worldSize must be at least 1, got 0"],
    method: ["InvalidArgument", "allGatherSingleCoalesced: "],
    handle: ["InvalidType", "asyncOp?: boolean"],
  };
  for (const [call, [kind, text]] of Object.entries(expected)) {
    assert.ok(got[call] !== null, `${call} throws`);
    assert.equal(got[call].kind, kind, call);
    assert.ok(got[call].message.includes(text), `${call}: ${got[call].message}`);
    assert.ok(got[call].base && got[call].name === got[call].class, call);
  }
});

test("unknown backends and names that are taken are errors with these names", async () => {
  const [{ refused, twice, again, all }] = await onRanks(1, SCENARIOS, "names");
  for (const error of refused) {
    assert.equal(error?.class, "UnknownBackendError", error?.message);
    assert.deepEqual([error.name, error.backend], ["UnknownBackendError", "nope"]);
    assert.equal(error.message, refused[0].message, "one text everywhere");
    assert.equal(error.known, refused[0].known);
  }
  assert.match(refused[0].message, /^Unknown backend type 'nope'; expected one of: tcp, gloo, /);
  assert.deepEqual([twice.class, twice.groupName], ["DuplicateGroupError", "mine"]);
  assert.match(again.message, /destroyProcessGroup\(\) leaves it$/);
  assert.deepEqual(all, refused[0].known.split(", "), "`Backend` has them all");
});

test("ranks that disagree all learn who", async () => {
  for (const error of await onRanks(2, SCENARIOS, "mismatch")) {
    assert.equal(error.kind, "CollectiveMismatch");
    assert.equal(error.class, "CollectiveMismatchError");
    assert.match(error.message, /ranks disagree on allreduce \(operation \d+ of group /);
    assert.equal(error.collective, "allreduce");
    assert.equal(typeof error.seq, "number");
  }
});

test("the death of a rank is named on all others, and by every later call", async () => {
  const ranks = await startRanks(3, SCENARIOS, "death");
  const [zero, one, two] = await Promise.all(ranks.map((rank) => rank.result));
  assert.equal(one.signal, "SIGKILL");
  for (const { value } of [zero, two]) {
    assert.equal(value.first.kind, "RankFailed");
    assert.equal(value.first.rank, 1);
    assert.equal(value.first.collective, "allreduce");
    assert.equal(value.later.kind, "RankFailed");
  }
});

test("a failure that nobody asks for ends no process", async () => {
  const ranks = await startRanks(2, SCENARIOS, "unasked");
  const [zero] = await Promise.all(ranks.map((rank) => rank.result));
  assert.deepEqual(zero.value?.kinds, ["RankFailed", "RankFailed", "RankFailed"], zero.error);
});

test("a wait that expires harms nothing", async () => {
  const [got] = await onRanks(2, SCENARIOS, "patience");
  assert.equal(got.expired.kind, "WaitTimeout");
  assert.match(got.expired.message, /allreduce \(operation \d+\) goes on/);
  assert.deepEqual(got.before, [0], "nothing is written before the end");
  assert.deepEqual(got.after, [1]);
});

test("an operation that passes its deadline says what it waited for", async () => {
  const [{ error }] = await onRanks(2, SCENARIOS, "deadline");
  assert.equal(error.kind, "CollectiveTimeout");
  assert.equal(error.collective, "allreduce");
  assert.deepEqual(error.missingRanks, [1], "it names who is missing");
  assert.equal(error.rank, 1);
  assert.equal(error.waitingRank, 0);
});

test("ranks that do not come to a group are named", async () => {
  const [error] = await onRanks(1, SCENARIOS, "alone");
  assert.equal(error.class, "RendezvousTimeoutError");
  assert.match(error.message, /^ranks 0, 2, 3 of 4 did not join/);
  assert.deepEqual([error.rank, error.missingRanks], [0, [0, 2, 3]]);
});

test("messages of unlike dtypes are an error on both sides", async () => {
  for (const error of await onRanks(2, SCENARIOS, "messageTypes")) {
    assert.equal(error.kind, "MessageDType");
    assert.equal(error.class, "MessageDTypeError");
    assert.deepEqual([error.from, error.to, error.tag], [0, 1, 5]);
    assert.deepEqual([error.sentDtype, error.bufferDtype], ["f64", "f32"]);
  }
});

test("roots on which ranks disagree are told at the latest when they leave", async () => {
  for (const error of await onRanks(2, SCENARIOS, "differentRoots")) {
    assert.equal(error?.kind, "CollectiveMismatch");
    assert.match(error.message, /root 0/);
    assert.match(error.message, /root 1/);
  }
});
