// What the native halves read of neutral values: the same inputs have the same answers and the same
// errors in Node and in browsers. The native half is called directly, as no user can, because the
// layer above refuses most of this itself.

import { equal, ok } from "../check.mjs";

/** Kind and message of what `act` throws. */
function thrown(act) {
  try {
    act();
  } catch (error) {
    ok(error.data !== undefined, `untyped: ${error.stack ?? error}`);
    return [error.data.kind, error.data.message];
  }
  throw new Error("nothing was thrown");
}

/** `depth` lists in one another. */
function nested(depth) {
  return depth === 0 ? 1 : [nested(depth - 1)];
}

const DEEP = "lists and records are nested deeper than 8 levels";
const KINDS = "tensor, array, reduceOp, dtype, duration, handle, record, options, object, foreign";
const RANGE = "a BigInt beyond 64 bits: integers are from -2^63 to 2^63 - 1";

/** Values that stand for nothing, and what is said of them. */
const REFUSED = [
  ["a list that is nested too deeply", () => nested(9), "InvalidType", DEEP],
  ["a list that contains itself", endless, "InvalidType", DEEP],
  ["records that are nested too deeply", () => record(9), "InvalidType", DEEP],
  ["a BigInt above 64 bits", () => 2n ** 63n, "InvalidArgument", RANGE],
  ["a BigInt below 64 bits", () => -(2n ** 63n) - 1n, "InvalidArgument", RANGE],
  ["an object of no kind", () => ({}), "InvalidType", "'kind' of a value must be a string"],
  ["an unknown kind", () => ({ kind: "x" }), "InvalidType",
    `'x' is not a kind of value; expected one of ${KINDS}`],
  ["a tensor that is not there", () => ({ kind: "tensor", index: 3 }), "InvalidArgument",
    "the call has no tensor 3"],
  ["a tensor without a position", () => ({ kind: "tensor", index: 0.5 }), "InvalidType",
    "'index' of a value must be an integer, not 0.5"],
  ["a tensor before the first", () => ({ kind: "tensor", index: -1 }), "InvalidType",
    "'index' of a value must be an integer in range, not -1"],
  ["an unknown element type", () => ({ kind: "dtype", code: 99 }), "InvalidArgument",
    "99 is not the number of an element type"],
  ["a part of an element type", () => ({ kind: "dtype", code: 1.5 }), "InvalidArgument",
    "1.5 is not the number of an element type"],
  ["an unknown operator", () => ({ kind: "reduceOp", code: 256 }), "InvalidArgument",
    "256 is not the number of a reduction operator without a factor"],
  ["an operator that lacks its factor", () => ({ kind: "reduceOp", code: 8 }), "InvalidArgument",
    "8 is not the number of a reduction operator without a factor"],
  ["a handle that is missing", () => ({ kind: "handle" }), "InvalidType",
    "'handle' of a value must be a value"],
  ["a handle of something else", () => ({ kind: "handle", handle: {} }), "InvalidType",
    "expected a handle of this package"],
  ["a duration that is not a number", () => ({ kind: "duration", ms: "1" }), "InvalidType",
    "'ms' of a value must be a number"],
];

/** Values that the resolver refuses for their type, and what it calls that. */
const SHOWN = [
  [null, "null or undefined"],
  [true, "boolean"],
  [3, "number"],
  [2 ** 53 - 1, "number"],
  [2 ** 53, "number"],
  [-0.5, "number"],
  [NaN, "number"],
  [2n ** 63n - 1n, "number"],
  [new Uint8Array(2), "Uint8Array"],
  [[1, 2], "array of 2 number"],
  [[], "empty array"],
  [nested(4), "array of 1 array of 1 array of 1 array of 1 number"],
  [{ kind: "dtype", code: 0 }, "DType"],
  [{ kind: "reduceOp", code: 8, factor: 2 }, "ReduceOp"],
  [{ kind: "duration", ms: 5 }, "number"],
  [{ kind: "duration", ms: -1 }, "number"],
  [{ kind: "foreign", typeName: "Thing", interfaces: ["Store"], callable: false }, "Thing"],
  [() => {}, "function"],
];

function endless() {
  const list = [];
  list.push(list);
  return list;
}

function record(depth) {
  const members = depth === 0 ? {} : { a: record(depth - 1) };
  return { kind: "record", members };
}

/** What a constructor that takes a string says of another value. */
function ofPrefix(native, value, keywords = null) {
  return thrown(() => native.invoke(null, "PREFIX_STORE_NEW", [value], keywords));
}

/** What an operation says of an array that is described so. */
function ofTensor(native, array, info) {
  const args = [{ kind: "tensor", index: 0 }];
  const prepare = () => native.prepare(null, "DISTRIBUTED_ALL_REDUCE", args, null, array, info, -1);
  return thrown(prepare);
}

export const values = {
  async "what stands for nothing is refused alike"(pr, native) {
    for (const [name, make, kind, message] of REFUSED) {
      equal(ofPrefix(native, make()), [kind, message], name);
      equal(ofPrefix(native, "x", { prefix: make() }), [kind, message], `${name}, by name`);
    }
  },

  async "what has another type is shown alike"(pr, native) {
    for (const [value, shown] of SHOWN) {
      const [kind, message] = ofPrefix(native, value);
      equal(kind, "InvalidType", shown);
      const end = `argument 'prefix' must be string, not ${shown}`;
      ok(message.endsWith(end), `"${message}" does not end with "${end}"`);
    }
  },

  async "what is null or undefined among the options is not given"(pr, native) {
    const said = ofPrefix(native, "x", { nothing: undefined, none: null });
    equal(said, ofPrefix(native, "x", {}), "as if they were not there");
  },

  async "tensors that make no sense are refused alike"(pr, native) {
    const four = [new Uint8Array(4)];
    const of = (info) => ofTensor(native, four, [{ dtype: 7, shape: [1], ...info }]);
    equal(ofTensor(native, four, []), ["InvalidArgument",
      "1 arrays came for 0 descriptions of tensors"]);
    equal(ofTensor(native, [new Int8Array(4)], [0]), ["InvalidType",
      "expected a tensor as a Uint8Array of its bytes"]);
    equal(ofTensor(native, four, [99]), ["InvalidArgument",
      "99 is not the number of an element type"]);
    equal(of({ shape: 4 }), ["InvalidType",
      "'shape' of a value must be a list of integers"]);
    equal(of({ shape: [1.5] }), ["InvalidType",
      "'shape' of a value must be an integer, not 1.5"]);
    equal(of({ shape: [-1] }), ["InvalidType",
      "'shape' of a value must be an integer in range, not -1"]);
    equal(of({ strides: ["x"] }), ["InvalidType",
      "'strides' of a value must be an integer, not NaN"]);
    equal(of({ offset: -2 }), ["InvalidType",
      "'offset' of a value must be an integer in range, not -2"]);
    equal(of({ memory: {} }), ["InvalidType", "expected a handle of this package"]);
  },
};
