// Tensors in memory of CUDA devices, which the native half makes, fills and reads. Knows nothing of
// operations.

import { DTYPES } from "../generated/constants.js";
import {
  InvalidArgumentError,
  InvalidTypeError,
  UnsupportedError,
  asError,
  wrapped,
} from "../generated/errors.js";
import { native } from "./native.js";
import { ANYTHING, expectAtMost, optionsOf } from "./options.js";
import {
  Elements,
  NO_BYTES,
  Tensor,
  VIEWS,
  checkSize,
  counts,
  described,
  dtypeOf,
  extent,
  gathered,
  named,
  product,
  rowMajor,
  tensor,
} from "./tensors.js";
import { byteLengthOf, bytesOf } from "./views.js";

/** The description of a tensor of a device for the native half: there is no array of it. */
export let describedOnDevice;

const INTERNAL = Symbol("polyrank.cudaTensor");

/** What the calls can be told; each is looked at where it is used. */
const FROM_OPTIONS = { device: ANYTHING, dtype: ANYTHING, shape: ANYTHING };
const POINTER = {
  pointer: ANYTHING,
  dtype: ANYTHING,
  shape: ANYTHING,
  strides: ANYTHING,
  device: ANYTHING,
  stream: ANYTHING,
  owner: ANYTHING,
};

/** A tensor in memory of a CUDA device. */
export class CudaTensor extends Elements {
  #info;
  #device;
  #stream;

  constructor(made, dtype, info, device, stream) {
    if (made !== INTERNAL) {
      throw new InvalidTypeError(
        "a CudaTensor is made by CudaTensor.from(), zeros(), empty() or fromPointer()",
      );
    }
    super(dtype, info);
    this.#info = info;
    this.#device = device;
    this.#stream = stream;
  }

  /** A copy of an array or a tensor of the host. */
  static async from(data, options) {
    expectAtMost(2, "CudaTensor.from", arguments.length);
    const { device, dtype, shape } = optionsOf("CudaTensor.from", options, FROM_OPTIONS);
    const index = indexOf(device, "from");
    const source = data instanceof Tensor ? data : tensor(data, { dtype });
    const { info } = described(source);
    const { bytes, code } = DTYPES.get(source.dtype);
    const sizes = (shape ?? null) === null ? source.shape : counts(shape, "shape");
    if (product(sizes) !== source.size) {
      const text = `[${sizes}] is not a shape of the ${source.size} elements that 'data' has`;
      throw new InvalidArgumentError(`CudaTensor.from(): ${text}`);
    }
    const dense = gathered(bytesOf(source.data), info, bytes);
    const memory = await asked("from", (half) => half.cudaUpload(dense, index));
    return made(source.dtype, { dtype: code, shape: Object.freeze([...sizes]), memory }, index);
  }

  /** A tensor of zeros. */
  static zeros(dtype, shape, options) {
    expectAtMost(3, "CudaTensor.zeros", arguments.length);
    return allocated(dtype, shape, options, "zeros");
  }

  /** A tensor whose elements are not initialised. */
  static empty(dtype, shape, options) {
    expectAtMost(3, "CudaTensor.empty", arguments.length);
    return allocated(dtype, shape, options, "empty");
  }

  /** Memory of another library. */
  static fromPointer(given) {
    const called = "CudaTensor.fromPointer";
    expectAtMost(1, called, arguments.length);
    const { pointer, dtype, shape, strides, device, owner, ...others } =
      optionsOf(called, given, POINTER);
    const stream = others.stream ?? 0n;
    const index = indexOf(device, "fromPointer");
    const name = dtypeOf(dtype, called);
    const { bytes, code } = DTYPES.get(name);
    const sizes = sizesOf(shape, bytes, called);
    const steps = (strides ?? null) === null ? undefined : counts(strides, "strides");
    if (steps !== undefined && steps.length !== sizes.length) {
      throw new InvalidArgumentError(`${called}(): 'strides' and 'shape' must be equally long`);
    }
    for (const [what, value] of Object.entries({ pointer, stream })) {
      if (typeof value === "bigint") continue;
      throw new InvalidTypeError(`${called}(): '${what}' must be a BigInt, not ${named(value)}`);
    }
    if (typeof owner !== "object" || owner === null) {
      const text = "must be an object that keeps the memory for as long as it is kept itself";
      throw new InvalidTypeError(`${called}(): 'owner' ${text}, not ${named(owner)}`);
    }
    const all = extent(sizes, steps ?? rowMajor(sizes)) * bytes;
    if (all > 0 && pointer === 0n) {
      throw new InvalidArgumentError(`${called}(): 'pointer' is null`);
    }
    const half = nativeHalf("fromPointer");
    const memory = wrapped(() => half.cudaMemoryAt(pointer, all, index, stream, owner));
    const info = { dtype: code, shape: sizes, memory };
    if (steps !== undefined) info.strides = steps;
    return made(name, info, index, stream);
  }

  get device() {
    return `cuda:${this.#device}`;
  }

  get pointer() {
    return this.#present().memory.address;
  }

  get stream() {
    return this.#stream;
  }

  /** The elements, after the work already issued on the stream. */
  async toArray() {
    const bytes = await this.#download();
    const View = VIEWS[this.dtype];
    return new View(bytes.buffer, bytes.byteOffset, bytes.byteLength / View.BYTES_PER_ELEMENT);
  }

  /** As `toArray`, into an array that is there. */
  async copyTo(array) {
    if (!ArrayBuffer.isView(array)) {
      const text = `must be a typed array or a DataView, not ${named(array)}`;
      throw new InvalidTypeError(`CudaTensor.copyTo(): 'array' ${text}`);
    }
    const check = () => {
      if (byteLengthOf(array) === this.byteLength) return;
      const text = `has ${byteLengthOf(array)} bytes, the tensor ${this.byteLength}`;
      throw new InvalidArgumentError(`CudaTensor.copyTo(): 'array' ${text}`);
    };
    check();
    const bytes = await this.#download();
    // It may have been transferred meanwhile.
    check();
    bytesOf(array).set(bytes);
    return array;
  }

  /** Frees the memory, once no operation uses it any more. */
  free() {
    this.#info.memory?.release();
    const { dtype, shape, strides } = this.#info;
    this.#info = Object.freeze({ dtype, shape, strides });
  }

  get [Symbol.toStringTag]() {
    return "CudaTensor";
  }

  #present() {
    if (this.#info.memory !== undefined) return this.#info;
    throw new InvalidArgumentError("a tensor of a device was used after free()");
  }

  async #download() {
    const info = this.#present();
    const { bytes } = DTYPES.get(this.dtype);
    const all = extent(info.shape, info.strides ?? rowMajor(info.shape)) * bytes;
    const got = await asked("toArray", (half) => half.cudaDownload(info.memory, 0, all));
    return gathered(got, info, bytes);
  }

  static {
    describedOnDevice = (tensor) => ({ info: tensor.#present(), view: NO_BYTES });
  }
}

function made(dtype, info, device, stream = 0n) {
  return new CudaTensor(INTERNAL, dtype, Object.freeze(info), device, stream);
}

async function allocated(dtype, shape, options, called) {
  const { device } = optionsOf(`CudaTensor.${called}`, options, { device: ANYTHING });
  const index = indexOf(device, called);
  const name = dtypeOf(dtype, `CudaTensor.${called}`);
  const { bytes, code } = DTYPES.get(name);
  const sizes = sizesOf(shape, bytes, `CudaTensor.${called}`);
  const memory = await asked(called, (half) => {
    return half.cudaAllocate(product(sizes) * bytes, index, called === "zeros");
  });
  return made(name, { dtype: code, shape: sizes, memory }, index);
}

function sizesOf(shape, elementBytes, called) {
  const sizes = counts(typeof shape === "number" ? [shape] : shape, "shape");
  checkSize(sizes, elementBytes, called);
  return sizes;
}

/** A promise of the native half, with errors of their classes. */
async function asked(called, question) {
  const half = nativeHalf(called);
  try {
    return await question(half);
  } catch (error) {
    throw asError(error);
  }
}

function nativeHalf(called) {
  if (native.cudaUpload !== undefined) return native;
  const who = `polyrank ${native.version()} in a browser`;
  const operation = `CudaTensor.${called}: there are no CUDA devices`;
  throw new UnsupportedError(`${who} does not support ${operation}`, { who, operation });
}

/** `1`, `"cuda:1"`, `"cuda"`: the index of a device. */
function indexOf(given, called) {
  const device = given ?? 0;
  const [, digits = "0"] = /^cuda(?::(\d+))?$/.exec(device) ?? [undefined, "none"];
  const index = typeof device === "number" ? device : Number(digits);
  if (Number.isSafeInteger(index) && index >= 0 && index < 2 ** 31) return index;
  const text = `must be the index of a CUDA device, or "cuda:INDEX", not ${String(device)}`;
  throw new InvalidArgumentError(`CudaTensor.${called}(): 'device' ${text}`);
}
