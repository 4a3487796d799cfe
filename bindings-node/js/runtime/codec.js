// Objects as CBOR (RFC 8949) and back, as ranks in every language read them. Nothing that is read
// runs code. Knows no operation.

import { Tagged, Token, Type, decode as decodeCbor, encode as encodeCbor } from "cborg";

import {
  TypedElements,
  arrayReaders,
  encodedTensor,
  encodedTypedArray,
} from "./array_codec.js";
import { InvalidArgumentError, InvalidTypeError } from "../generated/errors.js";
import { Tensor } from "./tensors.js";
import { bytesOf, classOf } from "./views.js";

/** How deep objects may be nested: a list may contain itself, and readers have limits. */
const DEEPEST = 100;

/** Tags of RFC 8949 and of the registry that it names. */
const POSITIVE = 2;
const NEGATIVE = 3;
const SET = 258;
const COMPLEX = 43000;
/** A tuple of Python: not registered; the letters `pytu`. */
const TUPLE = 0x70797475;
/** A `datetime.datetime` of Python, as text: not registered; what Python makes of the name. */
const TIME = 0x10c91776185da8;

/** The encoding of `object`. */
export function encode(object) {
  return encodeCbor(encodable(object, 0), { mapSorter: () => 0, typeEncoders: { number } });
}

/** Integers have no negative zero; others are as they would be without this. */
function number(value) {
  return Object.is(value, -0) ? new Token(Type.float, value) : null;
}

/** The object that `bytes` encode. */
export function decode(bytes) {
  try {
    return plain(decodeCbor(bytes, { tags, useMaps: true, coerceUndefinedToNull: true }));
  } catch (error) {
    throw new InvalidArgumentError(`no CBOR came: ${error.message}`, {});
  }
}

/** Maps whose keys are all texts are objects in JavaScript. */
function plain(value) {
  if (value instanceof TypedElements) return value.flat();
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Set) return new Set([...value].map(plain));
  if (!(value instanceof Map)) return value;
  const entries = [...value].map(([key, item]) => [plain(key), plain(item)]);
  const isObject = entries.every(([key]) => typeof key === "string");
  return isObject ? Object.fromEntries(entries) : new Map(entries);
}

function encodable(value, depth) {
  if (depth > DEEPEST) {
    throw new InvalidArgumentError(`objects are nested deeper than ${DEEPEST} levels`, {});
  }
  switch (typeof value) {
    case "undefined":
      return null;
    case "boolean":
    case "number":
    case "string":
      return value;
    case "bigint":
      return integer(value);
    case "object":
      return value === null ? null : encodableObject(value, depth);
    default:
      return refuse(value);
  }
}

function encodableObject(value, depth) {
  const inner = (item) => encodable(item, depth + 1);
  if (Array.isArray(value)) return Array.from(value, inner);
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) {
    if (classOf(value) === "DataView") return bytesOf(value);
    return encodedTypedArray(value) ?? refuse(value);
  }
  if (value instanceof Tensor) return encodedTensor(value);
  if (value instanceof Set) return new Tagged(SET, [...value].map(inner));
  if (value instanceof Map) {
    return new Map([...value].map(([key, item]) => [inner(key), inner(item)]));
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    if (reads(Date.prototype.getTime, value)) return time(value);
    const valueOf = BOXED.find((read) => reads(read, value));
    if (valueOf === undefined) return refuse(value);
    return encodable(valueOf.call(value), depth);
  }
  return new Map(Object.entries(value).map(([key, item]) => [key, inner(item)]));
}

/** What reads the values of boxed numbers, texts and the like. */
const BOXED = [Number, String, Boolean, BigInt].map(({ prototype }) => prototype.valueOf);

/** Whether `object` is of the class of the method `read`, of whichever realm. */
function reads(read, object) {
  try {
    read.call(object);
    return true;
  } catch {
    return false;
  }
}

/** A time as Python writes one in UTC, for the years that it knows. */
function time(date) {
  const text = Number.isNaN(date.getTime()) ? "Invalid Date" : date.toISOString();
  const year = /^(\d{4})-/.exec(text)?.[1] ?? "0000";
  if (year !== "0000") return new Tagged(TIME, text.replace("Z", "+00:00"));
  const years = "times are of the years from 1 to 9999";
  throw new InvalidArgumentError(`${text} is not encoded as CBOR: ${years}`, {});
}

/** A time with its offset from UTC, without what Python says of its zone; more than milliseconds
 * there are not here. A time without an offset is no point in time, and stays a text. */
const WITH_OFFSET = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:(\.\d{3})\d*)?([+-]\d\d:\d\d)(?:\[|$)/;

function timeOf(text) {
  const found = typeof text === "string" ? WITH_OFFSET.exec(text) : null;
  if (found === null) return text;
  const date = new Date(`${found[1]}${found[2] ?? ""}${found[3]}`);
  return Number.isNaN(date.getTime()) ? text : date;
}

/** An integer; of more than 64 bits as bytes, of which a negative one is -1 - n. */
function integer(value) {
  const rest = value >= 0n ? value : -1n - value;
  if (rest < 2n ** 64n) return value;
  const digits = rest.toString(16);
  // Of 16 bytes, other readers take the first bit as a sign.
  const zeros = value < 0n && rest >= 2n ** 127n ? "00" : "";
  const even = zeros + (digits.length % 2 === 0 ? digits : `0${digits}`);
  const bytes = Uint8Array.from(even.match(/../g), (pair) => Number.parseInt(pair, 16));
  return new Tagged(value >= 0n ? POSITIVE : NEGATIVE, bytes);
}

function refuse(value) {
  const name = typeof value === "object" ? (value.constructor?.name ?? "object") : typeof value;
  throw new InvalidTypeError(`values of type ${name} are not encoded as CBOR`, {});
}

const bigInteger = (bytes) => {
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return BigInt(`0x${digits || "0"}`);
};

const known = {
  ...arrayReaders,
  [POSITIVE]: (read) => bigInteger(read()),
  [NEGATIVE]: (read) => -1n - bigInteger(read()),
  [SET]: (read) => new Set(read()),
  [TUPLE]: (read) => read(),
  [TIME]: (read) => timeOf(read()),
  [COMPLEX]: (read) => {
    const [re, im] = read();
    return { re, im };
  },
};

/** For an unknown tag, the value is more useful than an error. */
const tags = new Proxy(known, {
  get: (_, tag) => known[tag] ?? ((read) => read()),
});
