// Objects as CBOR, and the functions that carry them: what the native half gets and how its answers
// come back. The bytes are compared with those of the other languages in their own tests.

import assert from "node:assert/strict";
import test from "node:test";

import { decode, encode } from "../../js/runtime/codec.js";
import { standIn } from "./standin.js";

const { pr, native } = await standIn();
const last = () => native.calls.at(-1);

/** What stands at a place of the last call, by position or by name. */
const told = (place, name) => last().args[place] ?? last().keywords[name];

test("objects come back as what they were", () => {
  const objects = [
    null,
    true,
    0,
    -1,
    2 ** 52,
    2n ** 63n,
    -(2n ** 64n),
    2n ** 100n,
    -(2n ** 100n),
    -(2n ** 127n) - 1n,
    2n ** 128n - 1n,
    -(2n ** 128n),
    -(10n ** 1000n),
    1.5,
    Infinity,
    "text ☃",
    [1, [2, []]],
    { a: 1, b: { c: [null] }, ["__proto__"]: 5 },
    new Map([[1, "one"], [null, 2]]),
    new Set([1, "a"]),
    new Uint8Array([1, 2]),
    new Float32Array([1.5, -2]),
    new BigInt64Array([-5n]),
    new Uint16Array(0),
  ];
  for (const object of objects) assert.deepEqual(decode(encode(object)), object);
  assert.deepEqual(decode(encode(objects)), objects);
  assert.equal(decode(encode(undefined)), null);
  assert.ok(Number.isNaN(decode(encode(NaN))));
  assert.deepEqual([...decode(encode(Buffer.from([3])))], [3]);
});

test("what other languages write is read", () => {
  const bytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => Number.parseInt(pair, 16));
  // A tuple of Python (1, 2), a complex number 1+2j, an array of NumPy of 2 x 1, an unknown tag.
  assert.deepEqual(decode(bytes("da70797475820102")), [1, 2]);
  assert.deepEqual(decode(bytes("d9a7f882f93c00f94000")), { re: 1, im: 2 });
  assert.deepEqual(decode(bytes("d82882820201d855480000803f00000040")), {
    shape: [2, 1],
    data: Float32Array.of(1, 2),
  });
  assert.deepEqual(decode(bytes("d9ffff05")), 5);
  for (const wrong of ["", "ff", "82", "5f", "1b"]) {
    const garbage = wrong === "" ? new Uint8Array(0) : bytes(wrong);
    assert.throws(() => decode(garbage), { name: "InvalidArgumentError" }, wrong);
  }
});

test("what cannot be encoded is refused", () => {
  const endless = [];
  endless.push(endless);
  assert.throws(() => encode(endless), { name: "InvalidArgumentError" });
  for (const object of [() => 1, Symbol("x"), new Date(), new (class Mine {})(), [new WeakMap()]]) {
    assert.throws(() => encode(object), { name: "InvalidTypeError" });
  }
});

test("a list is filled in place and given back", async () => {
  const list = [null, null];
  native.answers.set("DISTRIBUTED_BROADCAST_OBJECT_LIST", encode([{ a: 1 }, "b"]));
  assert.equal(await pr.broadcastObjectList(list, { src: 1 }), list);
  assert.deepEqual(list, [{ a: 1 }, "b"]);
  assert.deepEqual(last().keywords, { src: 1 });
  assert.deepEqual(told(0), { kind: "object", length: 2, bytes: encode([null, null]) });

  native.answers.set("DISTRIBUTED_ALL_GATHER_OBJECT", [encode(1), encode({ x: [2] })]);
  assert.equal(await pr.allGatherObject(list, { mine: true }), list);
  assert.deepEqual(list, [1, { x: [2] }]);
  assert.deepEqual(told(1), { kind: "object", bytes: encode({ mine: true }) });

  native.answers.set("DISTRIBUTED_GATHER_OBJECT", [encode("p"), encode("q")]);
  assert.equal(await pr.gatherObject({ src: 5 }, { objectGatherList: list, dst: 0 }), list);
  assert.deepEqual(list, ["p", "q"]);
  assert.deepEqual(told(0).bytes, encode({ src: 5 }));
  assert.deepEqual(told(1, "object_gather_list"), { kind: "object", length: 2 });
  native.answers.set("DISTRIBUTED_GATHER_OBJECT", null);
  assert.equal(await pr.gatherObject("x", { dst: 0 }), undefined);

  native.answers.set("DISTRIBUTED_SCATTER_OBJECT_LIST", encode("mine"));
  const output = [null];
  assert.equal(await pr.scatterObjectList(output, ["a", () => 1], { src: 0 }), output);
  assert.deepEqual(output, ["mine"]);
  const { items, length } = told(1);
  assert.deepEqual([length, items[0]], [2, { bytes: encode("a") }]);
  assert.match(items[1].failed, /function are not encoded/);

  assert.equal(await pr.sendObjectList([1, 2], { dst: 1 }), undefined);
  native.answers.set("DISTRIBUTED_RECV_OBJECT_LIST", { payload: encode([3, 4]), source: 6 });
  assert.equal(await pr.recvObjectList(list), 6);
  assert.deepEqual(list, [3, 4]);
});

test("mistakes are told to those who would wait, or to the caller", async () => {
  await pr.broadcastObjectList([() => 1], { src: 0 }).catch(() => {});
  assert.match(told(0).failed, /function are not encoded/);
  native.answers.set("DISTRIBUTED_BROADCAST_OBJECT_LIST", encode([1, 2, 3]));
  await assert.rejects(pr.broadcastObjectList([0], { src: 1 }), {
    message: "the list has 1 places, but 3 objects came",
  });
});

test("what is not a list is refused at the call, and nothing is sent", () => {
  const before = native.calls.length;
  const wrong = [
    () => pr.broadcastObjectList("x", { src: 1 }),
    () => pr.broadcastObjectList(null, { src: 1 }),
    () => pr.allGatherObject("no list", 1),
    () => pr.gatherObject(1, { objectGatherList: { length: 1 } }),
    () => pr.scatterObjectList([null], { scatterObjectInputList: new Set() }),
    () => pr.sendObjectList(7, { dst: 1 }),
    () => pr.recvObjectList("x"),
  ];
  for (const call of wrong) {
    const message = /^\w+Object(List)?\(\): argument '\w+List' must be a list, not /;
    assert.throws(call, { kind: "InvalidType", message }, `${call}`);
  }
  assert.equal(native.calls.length, before);
});

test("an object of a type of Python is a plain value", async () => {
  const { decode } = await import("../../js/runtime/codec.js");
  const tag = (low) => [0xdb, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, low];
  const text = (value) => [0x60 | value.length, ...new TextEncoder().encode(value)];
  // The dataclass `P(x=1, when=date(2026, 1, 2))`.
  const when = [...tag(6), ...text("2026-01-02")];
  const bytes = Uint8Array.from([...tag(5), 0xa2, ...text("x"), 1, ...text("when"), ...when]);
  assert.deepEqual(decode(bytes), { x: 1, when: "2026-01-02" });
});

test("an object that is missing is told by its name, and nothing is sent", async () => {
  const before = native.calls.length;
  const message = /^\w+Object\(\): argument 'obj' is missing or undefined; null is an object, too/;
  const wrong = [
    () => pr.allGatherObject([null], undefined),
    () => pr.allGatherObject([null], undefined, { src: 0 }),
    () => pr.allGatherObject([null]),
    () => pr.gatherObject(undefined, { objectGatherList: [null], dst: 0 }),
  ];
  for (const call of wrong) assert.throws(call, { kind: "InvalidType", message }, `${call}`);
  assert.equal(native.calls.length, before);
  native.answers.set("DISTRIBUTED_ALL_GATHER_OBJECT", [encode(null)]);
  assert.deepEqual(await pr.allGatherObject([1], null), [null]);
  assert.deepEqual(told(1), { kind: "object", bytes: encode(null) });
});
