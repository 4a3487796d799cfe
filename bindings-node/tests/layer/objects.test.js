// Objects as CBOR, and the functions that carry them: what the native half gets and how its answers
// come back. The bytes are compared with those of the other languages in their own tests.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
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
  // A tuple of Python (1, 2), a complex number 1+2j, lists of 1 x 2 and of 2, an unknown tag.
  assert.deepEqual(decode(bytes("da70797475820102")), [1, 2]);
  assert.deepEqual(decode(bytes("d9a7f882f93c00f94000")), { re: 1, im: 2 });
  const list = [new Map([[1, 2]]), "a"];
  assert.deepEqual(decode(bytes("d8288282010282a101026161")), {
    shape: [1, 2],
    data: list,
  });
  assert.deepEqual(decode(bytes("d82882810282a101026161")), list);
  assert.deepEqual(decode(bytes("d9ffff05")), 5);
  for (const wrong of ["", "ff", "82", "5f", "1b"]) {
    const garbage = wrong === "" ? new Uint8Array(0) : bytes(wrong);
    assert.throws(() => decode(garbage), { name: "InvalidArgumentError" }, wrong);
  }
});

/** What a tensor says of itself, and its bytes. */
function described({ dtype, shape, data }) {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("hex");
  return { dtype, shape, array: data.constructor.name, bytes };
}

test("an array that no typed array is comes as a tensor, and is sent as the array", () => {
  const bytes = (hex) => Buffer.from(hex, "hex");
  const hex = (array) => Buffer.from(array).toString("hex");
  const halves = globalThis.Float16Array?.name ?? "Uint16Array";
  // NumPy's own arrays: the tag is 2^52 and 48 bits of the digest of its name.
  const digest = createHash("sha256").update("polyrank numpy.ndarray").digest();
  const ofNumpy = `db0010${hex(digest.subarray(0, 6))}`;
  const name = (text) => hex([0x60 | text.length, ...Buffer.from(text)]);
  const cases = [
    ["d82882820201d855480000803f00000040", "f32", [2, 1], "Float32Array", "0000803f00000040"],
    ["d8288280d855440000803f", "f32", [], "Float32Array", "0000803f"],
    ["d82882820003d84e40", "i32", [0, 3], "Int32Array", ""],
    ["d828828102d840420102", "u8", [2], "Uint8Array", "0102"],
    ["d82882810282f5f4", "bool", [2], "Uint8Array", "0100"],
    ["d82882810080", "bool", [0], "Uint8Array", ""],
    [`d82882820101d85442003c`, "f16", [1, 1], halves, "003c"],
    [`${ofNumpy}83${name("bfloat16")}810142803f`, "bf16", [1], "Uint16Array", "803f"],
    [
      `${ofNumpy}83${name("<c8")}8101480000803f00000040`,
      "complex64", [1], "Float32Array", "0000803f00000040",
    ],
    [`${ofNumpy}83${name("<c16")}82000240`, "complex128", [0, 2], "Float64Array", ""],
  ];
  for (const [encoded, dtype, shape, array, elements] of cases) {
    const got = decode(bytes(encoded));
    assert.ok(got instanceof pr.Tensor, encoded);
    assert.deepEqual(described(got), { dtype, shape, array, bytes: elements }, encoded);
    assert.equal(hex(encode(got)), encoded);
  }
  // Another array of NumPy is what its parts are, and bytes without a shape are bytes.
  const times = decode(bytes(`${ofNumpy}83${name("<M8")}810040`));
  assert.deepEqual(times, ["<M8", [0], new Uint8Array(0)]);
  assert.deepEqual(decode(bytes("d840420102")), Uint8Array.of(1, 2));
  const half = decode(bytes("d828828101d85442003c"));
  if (halves === "Float16Array") assert.deepEqual(half, globalThis.Float16Array.of(1));
  else assert.deepEqual([half.dtype, half.shape, half.data], ["f16", [1], Uint16Array.of(0x3c00)]);
  const pair = `${ofNumpy}83${name("<c8")}810001`;
  const wrong = ["d828828103d855440000803f", "d828828101d8554100", pair];
  for (const short of wrong) {
    assert.throws(() => decode(bytes(short)), { name: "InvalidArgumentError" }, short);
  }
});

test("the elements of a tensor are sent row by row, wherever they lie", () => {
  const numbers = Int16Array.from({ length: 12 }, (_, index) => index);
  const cases = [
    [{ shape: [2, 3], strides: [1, 2] }, [0, 2, 4, 1, 3, 5]],
    [{ shape: [2, 2], offset: 5 }, [5, 6, 7, 8]],
    [{ shape: [3], strides: [0], offset: 4 }, [4, 4, 4]],
    [{ shape: [2, 1, 2], strides: [6, 5, 2], offset: 1 }, [1, 3, 7, 9]],
    [{ shape: [], offset: 7 }, [7]],
    [{ shape: [0, 2], strides: [1, 9] }, []],
  ];
  for (const [options, expected] of cases) {
    const got = decode(encode([pr.tensor(numbers, options)]))[0];
    const { shape } = options;
    if (shape.length === 1) assert.deepEqual(got, Int16Array.from(expected));
    else assert.deepEqual([got.dtype, got.shape, [...got.data]], ["i16", shape, expected]);
  }
  const truths = pr.tensor(Uint8Array.of(0, 7, 1, 0), { dtype: "bool", shape: [2], strides: [3] });
  assert.deepEqual(described(decode(encode(truths))).bytes, "0000");
});

test("times are those of Python, in UTC, to the millisecond", () => {
  const hex = (bytes) => Buffer.from(bytes).toString("hex");
  const bytes = (text) => {
    // The tag that Python makes of the name: 2^52 and 48 bits of its digest.
    const digest = createHash("sha256").update("polyrank datetime.datetime").digest();
    const tag = Buffer.concat([Buffer.from("db0010", "hex"), digest.subarray(0, 6)]);
    const utf8 = Buffer.from(text);
    return Buffer.concat([tag, Buffer.from([0x78, utf8.length]), utf8]);
  };
  const date = new Date(Date.UTC(2026, 0, 2, 3, 4, 5, 6));
  // As Python writes `datetime(2026, 1, 2, 3, 4, 5, 6000, timezone.utc)`, but for its zeros.
  assert.equal(hex(encode(date)), hex(bytes("2026-01-02T03:04:05.006+00:00")));
  assert.deepEqual(decode(encode([date, { date }])), [date, { date }]);
  for (const text of [
    "2026-01-02T03:04:05.006000+00:00",
    "2026-01-02T03:04:05.006999+00:00",
    "2026-01-02T05:04:05.006+02:00[Europe/Kyiv]",
    "2026-01-01T22:04:05.006000-05:00[_zone=here][_fold=1]",
  ]) {
    assert.deepEqual(decode(bytes(text)), date, text);
  }
  const whole = new Date(Date.UTC(2026, 0, 2, 3, 4, 5));
  assert.deepEqual(decode(bytes("2026-01-02T03:04:05+00:00")), whole);
  // Which point in time that is, only its writer knows.
  assert.equal(decode(bytes("2026-01-02T03:04:05.006000")), "2026-01-02T03:04:05.006000");
});

test("boxed values are what they hold, a DataView is bytes, and zero has its sign", () => {
  const boxes = [Object(1.5), Object("text"), Object(false), Object(2n ** 70n)];
  assert.deepEqual(decode(encode(boxes)), [1.5, "text", false, 2n ** 70n]);
  const view = new DataView(Uint8Array.of(1, 2, 3, 4).buffer, 1, 2);
  assert.deepEqual(decode(encode(view)), Uint8Array.of(2, 3));
  assert.deepEqual([...encode(-0)], [0xf9, 0x80, 0x00]);
  assert.deepEqual([...encode(0)], [0x00]);
  for (const zero of [-0, 0]) assert.ok(Object.is(decode(encode([zero]))[0], zero));
  assert.ok(Object.is(decode(encode(Object(-0))), -0));
});

test("what cannot be encoded is refused", () => {
  const endless = [];
  endless.push(endless);
  assert.throws(() => encode(endless), { name: "InvalidArgumentError" });
  const mine = new (class Mine {})();
  const objects = [() => 1, Symbol("x"), Object(Symbol("x")), mine, [new WeakMap()]];
  for (const object of objects) {
    assert.throws(() => encode(object), { name: "InvalidTypeError" });
  }
  for (const date of [new Date(NaN), new Date(Date.UTC(-1, 0)), new Date(8.64e15)]) {
    assert.throws(() => encode(date), { name: "InvalidArgumentError", message: /from 1 to 9999/ });
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
