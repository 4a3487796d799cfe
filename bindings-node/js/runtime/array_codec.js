// Arrays as CBOR and back, in the forms of RFC 8746 and of the element types that have none there:
// typed arrays, and tensors for what those do not say. Knows no other objects, and no operation.

import { Tagged } from "cborg";

import { DTYPES } from "../generated/constants.js";
import { InvalidArgumentError } from "../generated/errors.js";
import { VIEWS, gathered, product, tensor } from "./tensors.js";
import { bytesOf, classOf } from "./views.js";

/** An array with its shape, as other languages' arrays have one. */
const SHAPED = 40;
/** An array of NumPy, as the name of its elements, its shape and its bytes: not registered; what
 * Python makes of the name of the class. */
const OF_NUMPY = 0x10cf9d539be508;

/** Tags of arrays in RFC 8746, little-endian, by their element types. */
const TAGS = new Map([
  ["u8", 64],
  ["u16", 69],
  ["u32", 70],
  ["u64", 71],
  ["i8", 72],
  ["i16", 77],
  ["i32", 78],
  ["i64", 79],
  ["f16", 84],
  ["f32", 85],
  ["f64", 86],
]);

/** The names that NumPy has for elements which have no tag. */
const NAMES = new Map([
  ["bf16", "bfloat16"],
  ["complex64", "<c8"],
  ["complex128", "<c16"],
]);

/** The element types whose arrays of one dimension are typed arrays. A `Uint8Array` is bytes. */
const TYPED = [...TAGS.keys()].filter((dtype) => {
  return dtype !== "u8" && (dtype !== "f16" || VIEWS.f16 !== Uint16Array);
});

/** The encoding of a typed array; null: there is none of its kind. */
export function encodedTypedArray(array) {
  const dtype = TYPED.find((it) => VIEWS[it].name === classOf(array));
  if (dtype === undefined) return null;
  const bytes = bytesOf(array);
  return tagged(dtype, [bytes.byteLength / DTYPES.get(dtype).bytes], bytes);
}

/** The encoding of a tensor: its elements, row by row. */
export function encodedTensor(given) {
  const { dtype, shape, data } = given;
  return tagged(dtype, shape, gathered(bytesOf(data), given, DTYPES.get(dtype).bytes));
}

function tagged(dtype, shape, bytes) {
  const name = NAMES.get(dtype);
  if (name !== undefined) return new Tagged(OF_NUMPY, [name, shape, bytes]);
  // As lists of them are: there is no tag.
  const elements = dtype === "bool" ? Array.from(bytes, Boolean) : null;
  return new Tagged(SHAPED, [shape, elements ?? new Tagged(TAGS.get(dtype), bytes)]);
}

/** What reads an array, by tag; `read` gives what stands behind it. */
export const arrayReaders = {
  [SHAPED]: (read) => {
    const [shape, elements] = read();
    if (elements instanceof TypedElements) return elements.shaped(shape);
    if (Array.isArray(elements) && elements.every((it) => typeof it === "boolean")) {
      return new TypedElements("bool", Uint8Array.from(elements)).shaped(shape);
    }
    return shape.length === 1 ? elements : new Map(Object.entries({ shape, data: elements }));
  },
  [OF_NUMPY]: (read) => {
    const plain = read();
    const [name, shape, bytes] = Array.isArray(plain) ? plain : [];
    const dtype = [...NAMES].find(([, known]) => known === name)?.[0];
    return dtype === undefined ? plain : new TypedElements(dtype, bytes).shaped(shape);
  },
};
for (const [dtype, tag] of TAGS) {
  arrayReaders[tag] = (read) => new TypedElements(dtype, read());
}

/** Elements of one type, of which it is not known yet what shape they have. */
export class TypedElements {
  #dtype;
  #view;

  constructor(dtype, bytes) {
    const View = VIEWS[dtype];
    this.#dtype = dtype;
    // As a part of a message they need not lie where such elements may.
    this.#view = new View(bytes.slice().buffer);
  }

  /** An array of this shape. */
  shaped(shape) {
    const [dtype, view] = [this.#dtype, this.#view];
    const { bytes } = DTYPES.get(dtype);
    if (product(shape) * bytes !== view.byteLength) {
      const text = `${view.byteLength} bytes are not ${dtype} elements of the shape [${shape}]`;
      throw new InvalidArgumentError(text, {});
    }
    return shape.length === 1 && TYPED.includes(dtype) ? view : tensor(view, { dtype, shape });
  }

  /** An array without a shape. */
  flat() {
    if (this.#dtype === "u8") return this.#view;
    return this.shaped([this.#view.byteLength / DTYPES.get(this.#dtype).bytes]);
  }
}
