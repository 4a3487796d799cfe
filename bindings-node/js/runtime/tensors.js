// Tensors: what every typed array is by itself, and `Tensor` for what it cannot say: other element
// types, shapes, strides, memory that polyrank owns. Knows nothing of operations.

import { DTYPES } from "../generated/constants.js";
import { InvalidArgumentError, InvalidTypeError, wrapped } from "../generated/errors.js";
import { native, platform } from "./native.js";
import { ANYTHING, expectAtMost, optionsOf } from "./options.js";
import { homeOf, noteHome } from "./owned.js";
import { byteLengthOf, bytesOf, classOf } from "./views.js";

/** The arrays whose elements have a type of polyrank, in every JavaScript, by that type. */
const ARRAYS = {
  i8: Int8Array,
  u8: Uint8Array,
  i16: Int16Array,
  u16: Uint16Array,
  i32: Int32Array,
  u32: Uint32Array,
  i64: BigInt64Array,
  u64: BigUint64Array,
  f32: Float32Array,
  f64: Float64Array,
};

/** The element type of an array, by the name of its class. */
const OF_ARRAY = {
  ...Object.fromEntries(Object.entries(ARRAYS).map(([dtype, { name }]) => [name, dtype])),
  Uint8ClampedArray: "u8",
  Float16Array: "f16",
  DataView: "u8",
};

/** The number of an array's element type, by the name of its class. */
const CODES = new Map(
  Object.entries(OF_ARRAY).map(([array, dtype]) => [array, DTYPES.get(dtype).code]),
);

/** The array in which elements of a type are looked at, where JavaScript has one of that type. */
export const VIEWS = {
  ...ARRAYS,
  bool: Uint8Array,
  f16: globalThis.Float16Array ?? Uint16Array,
  bf16: Uint16Array,
  complex64: Float32Array,
  complex128: Float64Array,
};

/** Bytes of one element, by the number of its type. */
const SIZES = new Map([...DTYPES.values()].map(({ code, bytes }) => [code, bytes]));

/** The number of the element type of a typed array or a DataView. */
export function codeOf(view) {
  return CODES.get(classOf(view));
}

/** What the native half is told of all elements of a typed array, which are copied though they may
 * lie in memory of polyrank. */
export function flatInfo(array) {
  const dtype = codeOf(array);
  return { dtype, shape: [byteLengthOf(array) / SIZES.get(dtype)] };
}

/** How many elements of which type something has that may be a tensor: `4 f32`. */
export function elementsOf(object) {
  if (object instanceof Elements) return `${object.size} ${object.dtype}`;
  if (!ArrayBuffer.isView(object)) return named(object);
  const dtype = OF_ARRAY[classOf(object)];
  return `${byteLengthOf(object) / DTYPES.get(dtype).bytes} ${dtype}`;
}

/** Where a tensor lies: in which memory, from which byte to which. Where its elements have gaps
 * between them, `step` is from one to the next; 0: they have none, or it is not as simple. */
export function spanOf(tensorBytes, info) {
  const { buffer, byteOffset, byteLength } = tensorBytes;
  if (typeof info === "number") {
    const to = byteOffset + byteLength;
    return { memory: buffer, from: byteOffset, to, step: 0, bytes: 1, isOwned: false };
  }
  const bytes = SIZES.get(info.dtype);
  const isOwned = info.memory !== undefined;
  const home = isOwned ? { memory: info.memory, offset: 0 } : homeOf(tensorBytes);
  const from = (home?.offset ?? byteOffset) + (info.offset ?? 0) * bytes;
  const to = from + extent(info.shape, info.strides ?? rowMajor(info.shape)) * bytes;
  const step = info.strides?.length === 1 ? info.strides[0] * bytes : 0;
  return { memory: home?.memory ?? buffer, from, to, step, bytes, isOwned };
}

/** What the native half is told of an array that looks at memory of polyrank: which elements of
 * that it is, to be used in place. `info` is what it were told of any other array. Null: it looks
 * at no such memory, or that is not a list of such elements. */
export function inPlace(tensorBytes, info) {
  const home = homeOf(tensorBytes);
  if (home === null) return null;
  const { dtype, shape, offset = 0, ...rest } = typeof info === "number" ? { dtype: info } : info;
  const bytes = SIZES.get(dtype);
  if (home.offset % bytes !== 0 || home.memoryBytes % bytes !== 0) return null;
  const place = { offset: offset + home.offset / bytes, memory: home.memory };
  return { ...rest, ...place, dtype, shape: shape ?? [tensorBytes.byteLength / bytes] };
}

/** What the native half is told of a tensor, and the array to copy: empty if it owns the memory. */
export let described;

const INTERNAL = Symbol("polyrank.tensor");
/** The array of a tensor that is used in place: there is nothing to copy. */
export const NO_BYTES = new Uint8Array(0);

/** The memory that arrays look at: it must not go as long as they are there, though their tensor
 * may be gone. In WebAssembly nothing else keeps it, for all of it is one buffer. */
const owners = new WeakMap();

/** What every tensor says of its elements, wherever they lie. */
export class Elements {
  #dtype;
  #shape;
  #strides;

  constructor(dtype, { shape, strides }) {
    this.#dtype = dtype;
    this.#shape = shape;
    this.#strides = strides;
  }

  get dtype() {
    return this.#dtype;
  }

  get shape() {
    return [...this.#shape];
  }

  get strides() {
    return [...(this.#strides ?? rowMajor(this.#shape))];
  }

  get size() {
    return product(this.#shape);
  }

  get byteLength() {
    return this.size * DTYPES.get(this.#dtype).bytes;
  }
}

/** A view of memory as a tensor: element type, shape, strides and offset, in elements. */
export class Tensor extends Elements {
  #data;
  #memory;
  #info;

  constructor(made, dtype, data, memory, info) {
    if (made !== INTERNAL) {
      throw new InvalidTypeError("a Tensor is made by tensor(data) or alloc(dtype, shape)");
    }
    super(dtype, info);
    this.#data = data;
    this.#memory = memory;
    this.#info = info;
  }

  get offset() {
    return this.#info.offset ?? 0;
  }

  /** The memory as an array; of owned memory a new view each time, because memory may move. */
  get data() {
    if (this.#memory === null) return this.#data;
    const bytes = this.#memory.view();
    noteHome(this.#memory, bytes);
    const View = VIEWS[this.dtype];
    const length = bytes.byteLength / View.BYTES_PER_ELEMENT;
    const view = new View(bytes.buffer, bytes.byteOffset, length);
    owners.set(view, this.#memory);
    return view;
  }

  get [Symbol.toStringTag]() {
    return "Tensor";
  }

  static {
    described = (tensor) => {
      if (tensor.#memory !== null) return { info: tensor.#info, view: NO_BYTES };
      return { info: tensor.#info, view: tensor.#data };
    };
  }
}

/** What a tensor can be told; each is looked at where it is used. */
const TENSOR_OPTIONS = { dtype: ANYTHING, shape: ANYTHING, strides: ANYTHING, offset: ANYTHING };

/** A tensor over the memory of `data`, which it does not copy. */
export function tensor(data, options) {
  expectAtMost(2, "tensor", arguments.length);
  if (!ArrayBuffer.isView(data)) {
    throw new InvalidTypeError(
      `tensor(): 'data' must be a typed array or a DataView, not ${named(data)}`,
    );
  }
  const given = optionsOf("tensor", options, TENSOR_OPTIONS);
  const [shape, strides, offset] = [given.shape, given.strides, given.offset ?? 0];
  const dtype = dtypeOf(given.dtype ?? OF_ARRAY[classOf(data)], "tensor");
  const { bytes, code } = DTYPES.get(dtype);
  const dataBytes = byteLengthOf(data);
  if (dataBytes % bytes !== 0) {
    const text = `tensor(): ${dataBytes} bytes are not a whole number of ${dtype} elements`;
    throw new InvalidArgumentError(text);
  }
  const elements = dataBytes / bytes;
  checkCount(offset, "offset");
  const sizes = (shape ?? null) === null ? [elements - offset] : counts(shape, "shape");
  checkSize(sizes, bytes, "tensor");
  const steps = (strides ?? null) === null ? undefined : counts(strides, "strides");
  if (steps !== undefined && steps.length !== sizes.length) {
    throw new InvalidArgumentError("tensor(): 'strides' and 'shape' must be equally long");
  }
  const needed = offset + extent(sizes, steps ?? rowMajor(sizes));
  if (needed > elements || offset > elements) {
    const text = `the shape needs ${needed} elements of ${dtype}, but 'data' has ${elements}`;
    throw new InvalidArgumentError(`tensor(): ${text}`);
  }
  const info = { dtype: code, shape: sizes };
  if (steps !== undefined) info.strides = steps;
  if (offset !== 0) info.offset = offset;
  return new Tensor(INTERNAL, dtype, data, null, Object.freeze(info));
}

/** A tensor of zeros in memory that polyrank owns, which operations use without copying it. */
export function alloc(dtype, shape) {
  expectAtMost(2, "alloc", arguments.length);
  const name = dtypeOf(dtype, "alloc");
  const sizes = counts(typeof shape === "number" ? [shape] : shape, "shape");
  const { bytes, code } = DTYPES.get(name);
  checkSize(sizes, bytes, "alloc", platform.maxArrayBytes);
  const memory = wrapped(() => native.alloc(product(sizes) * bytes));
  const info = Object.freeze({ dtype: code, shape: sizes, memory });
  return new Tensor(INTERNAL, name, null, memory, info);
}

/** A tensor over memory of polyrank that is there, as the core describes it. */
export function tensorOver({ memory, dtype, shape }) {
  const { name } = [...DTYPES.values()].find(({ code }) => code === dtype);
  const info = Object.freeze({ dtype, shape: Object.freeze(shape), memory });
  return new Tensor(INTERNAL, name, null, memory, info);
}

/** The elements of a tensor in these bytes, row by row, without gaps. */
export function gathered(bytes, info, elementBytes) {
  const dense = denseRange(info, elementBytes);
  if (dense !== null) return bytes.subarray(...dense);
  const all = new Uint8Array(product(info.shape) * elementBytes);
  forEachElement(info, (element, at) => {
    const from = at * elementBytes;
    all.set(bytes.subarray(from, from + elementBytes), element * elementBytes);
  });
  return all;
}

/** Sets the elements of a tensor in these bytes, and nothing between them, from a copy of all of
 * the bytes. */
function putBack(bytes, copy, info, elementBytes) {
  const dense = denseRange(info, elementBytes);
  if (dense !== null) {
    bytes.set(copy.subarray(...dense), dense[0]);
    return;
  }
  forEachElement(info, (_element, at) => {
    const from = at * elementBytes;
    bytes.set(copy.subarray(from, from + elementBytes), from);
  });
}

/** From which byte to which a tensor lies whose elements follow one another; null: they do not. */
function denseRange({ shape, strides, offset = 0 }, elementBytes) {
  const steps = strides ?? rowMajor(shape);
  const isDense = (step, axis) => step === steps[axis] || shape[axis] === 1;
  if (!rowMajor(shape).every(isDense)) return null;
  return [offset * elementBytes, (offset + product(shape)) * elementBytes];
}

/** Calls `visit` for each element, row by row, with its number and where it lies, in elements. */
function forEachElement({ shape, strides, offset = 0 }, visit) {
  const count = product(shape);
  const steps = strides ?? rowMajor(shape);
  const place = new Array(shape.length).fill(0);
  let at = offset;
  for (let element = 0; element < count; element += 1) {
    visit(element, at);
    for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
      place[axis] += 1;
      at += steps[axis];
      if (place[axis] < shape[axis]) break;
      at -= steps[axis] * shape[axis];
      place[axis] = 0;
    }
  }
}

/** Whether something is a tensor of the host, or a typed array. */
export function isArray(object) {
  return object instanceof Tensor || ArrayBuffer.isView(object);
}

/** A description of a tensor or typed array whose elements lie in memory of polyrank; null if they
 * do not. */
export function infoInOwnMemory(array) {
  const isFlat = !(array instanceof Tensor);
  const { info, view } = isFlat ? { info: codeOf(array), view: array } : described(array);
  return info.memory === undefined ? inPlace(bytesOf(view), info) : info;
}

/** A description of a tensor whose elements lie in memory of polyrank, copied if need be;
 * `putBack` sets the tensor's elements from the copy, if its memory is there yet, and says whether
 * it is; `free` ends the copy. */
export function inOwnMemory(array, called) {
  if (!isArray(array)) {
    const came = named(array);
    throw new InvalidTypeError(`${called}: expected a typed array or a tensor, not ${came}`);
  }
  const isFlat = !(array instanceof Tensor);
  const { info, view } = isFlat ? { info: flatInfo(array), view: array } : described(array);
  if (info.memory !== undefined) return { info, putBack: () => true, free: () => {} };
  const bytes = bytesOf(view);
  const memory = wrapped(() => native.alloc(bytes.byteLength));
  memory.view().set(bytes);
  return {
    info: { ...info, memory },
    putBack: () => {
      // A buffer that was transferred has no bytes any more.
      if (bytes.byteLength !== memory.view().byteLength) return false;
      putBack(bytes, memory.view(), info, SIZES.get(info.dtype));
      return true;
    },
    free: () => memory.release(),
  };
}

export function dtypeOf(name, called) {
  const known = DTYPES.get(name);
  if (known !== undefined) return known.name;
  const names = [...new Set([...DTYPES.values()].map((dtype) => dtype.name))].join(", ");
  throw new InvalidArgumentError(
    `${called}(): no dtype is called '${String(name)}'; expected one of ${names}`,
  );
}

export function counts(list, name) {
  if (!Array.isArray(list) && !ArrayBuffer.isView(list)) {
    throw new InvalidTypeError(`'${name}' must be a list of numbers, not ${named(list)}`);
  }
  const all = [...list].map(Number);
  for (const count of all) checkCount(count, name);
  return Object.freeze(all);
}

function checkCount(count, name) {
  if (!Number.isSafeInteger(count) || count < 0) {
    const came = String(count);
    throw new InvalidArgumentError(`'${name}' must be whole numbers from 0 on, not ${came}`);
  }
  const { maxMemoryBytes: max } = platform;
  if (count > max) {
    throw new InvalidArgumentError(`'${name}' must be at most ${max}, not ${count}`);
  }
}

/** Throws if a tensor of these sizes is larger than memory can be. Sizes of 0 are left out: the
 * others must be possible all the same. */
export function checkSize(sizes, elementBytes, called, maxBytes = platform.maxMemoryBytes) {
  const bytes = product(sizes.filter((size) => size !== 0)) * elementBytes;
  if (bytes <= maxBytes) return;
  const limit = `there can be ${maxBytes} bytes at most`;
  throw new InvalidArgumentError(`${called}(): [${sizes}] has too many elements; ${limit}`);
}

export function product(sizes) {
  return sizes.reduce((all, size) => all * size, 1);
}

export function rowMajor(sizes) {
  const strides = new Array(sizes.length);
  let step = 1;
  for (let axis = sizes.length - 1; axis >= 0; axis -= 1) {
    strides[axis] = step;
    step *= sizes[axis];
  }
  return strides;
}

/** How many elements lie between the first and the end of the last one. */
export function extent(sizes, strides) {
  if (sizes.includes(0)) return 0;
  return sizes.reduce((last, size, axis) => last + (size - 1) * strides[axis], 1);
}

export function named(value) {
  return value === null ? "null" : (value?.constructor?.name ?? typeof value);
}
