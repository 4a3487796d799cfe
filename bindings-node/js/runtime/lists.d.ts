// Declarations of lists that calls take, by hand; `index.d.ts` exports them.

/** Sizes, ranks and the like: an array of numbers, or a typed array of integers. */
export type IntegerList =
  | readonly (number | bigint)[]
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array;
