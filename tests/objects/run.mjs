// A JavaScript rank that exchanges arrays as objects with ranks of any language, in Node or in a
// browser. run.py is the same in Python.

const SHAPES = [[], [1], [5], [0], [2, 3], [0, 3], [2, 0]];

/** For each element type: the array of its elements, and the elements 0, 1, 2, … in that. */
const ELEMENTS = {
  bool: [Uint8Array, (index) => [index % 2]],
  u8: [Uint8Array, (index) => [index]],
  i8: [Int8Array, (index) => [index]],
  u16: [Uint16Array, (index) => [index]],
  i16: [Int16Array, (index) => [index]],
  u32: [Uint32Array, (index) => [index]],
  i32: [Int32Array, (index) => [index]],
  u64: [BigUint64Array, (index) => [BigInt(index)]],
  i64: [BigInt64Array, (index) => [BigInt(index)]],
  f16: [Uint16Array, (index) => [[0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500][index]]],
  bf16: [Uint16Array, (index) => [[0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0][index]]],
  f32: [Float32Array, (index) => [index]],
  f64: [Float64Array, (index) => [index]],
  complex64: [Float32Array, (index) => [index, index + 1]],
  complex128: [Float64Array, (index) => [index, index + 1]],
};

/** Those whose arrays of one dimension come as typed arrays of JavaScript. */
const TYPED = ["i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"];
if (globalThis.Float16Array !== undefined) TYPED.push("f16");

/** The places of the elements of an array of two dimensions that lies column by column. */
const BY_COLUMN = [0, 3, 1, 4, 2, 5];

function check(isRight, what) {
  if (!isRight) throw new Error(what);
}

/** Every type and shape; those of two dimensions lie column by column. */
function ownArrays(pr) {
  return Object.keys(ELEMENTS).flatMap((dtype) => SHAPES.map((shape) => {
    const isFlat = shape.length < 2;
    const elements = all(dtype, shape, isFlat ? null : BY_COLUMN);
    const isTyped = shape.length === 1 && TYPED.includes(dtype) && dtype !== "f16";
    const strides = isFlat ? undefined : [1, shape[0]];
    return isTyped ? elements : pr.tensor(elements, { dtype, shape, strides });
  }));
}

/** The elements of an array, in the order of `places`. */
function all(dtype, shape, places) {
  const [array, element] = ELEMENTS[dtype];
  const size = shape.reduce((product, count) => product * count, 1);
  const numbers = Array.from({ length: size }, (_, index) => element(places?.[index] ?? index));
  return array.from(numbers.flat());
}

function checkArrays(pr, arrays, what) {
  const expected = Object.keys(ELEMENTS).flatMap((dtype) => SHAPES.map((shape) => [dtype, shape]));
  check(arrays.length === expected.length, `${what}: ${arrays.length} arrays`);
  arrays.forEach((came, index) => {
    const [dtype, shape] = expected[index];
    const about = `${what}: ${dtype} of [${shape}]`;
    const isTyped = shape.length === 1 && TYPED.includes(dtype);
    check(isTyped ? ArrayBuffer.isView(came) : came instanceof pr.Tensor, `${about}: its class`);
    const told = pr.tensor(isTyped ? came : came.data);
    const { dtype: type, shape: sizes } = isTyped ? told : came;
    check(type === dtype && `${sizes}` === `${shape}`, `${about}: ${type} of [${sizes}]`);
    check(hex(told.data) === hex(all(dtype, shape)), `${about}: ${hex(told.data)}`);
  });
}

function hex({ buffer, byteOffset, byteLength }) {
  return `${new Uint8Array(buffer, byteOffset, byteLength)}`;
}

/** Runs all; fails if something was not as it should be. */
export async function main(pr, here) {
  await pr.initProcessGroup({ ...here.init, timeout: 60_000 });
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const came = new Array(size).fill(null);
  await pr.allGatherObject(came, ownArrays(pr));
  came.forEach((arrays, source) => checkArrays(pr, arrays, `from rank ${source}`));
  const back = new Array(size).fill(null);
  await pr.allGatherObject(back, came);
  back.forEach((lists, reader) => lists.forEach((arrays, source) => {
    checkArrays(pr, arrays, `from rank ${source} by way of rank ${reader}`);
  }));
  await pr.destroyProcessGroup();
  here.say(`${here.language} rank ${rank} of ${size}: arrays passed`);
  return 0;
}
