// Views on memory, read by JavaScript's own getters: a view may have properties of its own with the
// same names and other values. Knows nothing of tensors.

import { InvalidArgumentError } from "../generated/errors.js";

const typed = getters(Object.getPrototypeOf(Uint8Array.prototype));
const data = getters(DataView.prototype);

/** `Float32Array`, …, `DataView`: what a view is, whatever it calls itself. */
export function classOf(view) {
  return typed.class.call(view) ?? "DataView";
}

/** Whether `value` is a typed array, of whichever realm. */
export function isTypedArray(value) {
  return ArrayBuffer.isView(value) && typed.class.call(value) !== undefined;
}

/** The bytes that a view has now; 0 if its memory was transferred. */
export function byteLengthOf(view) {
  try {
    return (typed.class.call(view) === undefined ? data : typed).byteLength.call(view);
  } catch {
    // A DataView without memory throws.
    return 0;
  }
}

/** The bytes of a view: the same memory, in an array that nobody else has. */
export function bytesOf(view) {
  const of = typed.class.call(view) === undefined ? data : typed;
  try {
    return new Uint8Array(of.buffer.call(view), of.byteOffset.call(view), of.byteLength.call(view));
  } catch (error) {
    throw gone(error);
  }
}

/** The bytes of a buffer. */
export function bytesOfBuffer(buffer) {
  try {
    return new Uint8Array(buffer);
  } catch (error) {
    throw gone(error);
  }
}

/** What a message calls the type of `value`. */
export function typeName(value) {
  if (value === null) return "null";
  if (typeof value !== "object") return typeof value;
  return value.constructor?.name || "object";
}

function gone(cause) {
  const text = "the memory of an array was given away (transferred or detached) before the call";
  return Object.assign(new InvalidArgumentError(text), { cause });
}

function getters(prototype) {
  const getter = (name) => Object.getOwnPropertyDescriptor(prototype, name)?.get;
  return {
    class: getter(Symbol.toStringTag),
    buffer: getter("buffer"),
    byteOffset: getter("byteOffset"),
    byteLength: getter("byteLength"),
  };
}
