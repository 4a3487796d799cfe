// Declarations of stores that are written in JavaScript, by hand; `index.d.ts` exports them.

import type {
  BytesLike,
  Store,
  StoreTimeoutError,
  UnsupportedError,
} from "../../index.js";

/** What is taken where a store is expected: every {@link Store} has these methods. */
export type StoreLike = StoreMethods;

/**
 * An object that is a store: of any class, or a plain one. Where it is passed, its methods are what
 * the store does. A class that extends {@link Store} and has these methods is made by `new`, and
 * has all other methods of `Store`; what takes stores of a program's own takes a
 * {@link StoreLike}.
 *
 * The methods that can be left out are made of the others: `wait` of `check`, `multiGet` of `wait`
 * and `get`, `multiSet` of `set`, `numKeys` of `listKeys`, `barrier` of `add`, `set` and `wait`.
 * Calls of the rest raise {@link UnsupportedError}.
 *
 * Methods are called on the thread that the object belongs to, between turns of its event loop, in
 * the order of the calls; one that awaits does not hold up the next. Values come as bytes. What a
 * method throws is what the call of the store, or what needed it, fails with. An error whose name
 * is `TimeoutError` is a {@link StoreTimeoutError}, and so is a method that takes longer than the
 * store's timeout.
 */
export interface StoreMethods {
  /** Sets `key` to `value`, over what was there. */
  set(key: string, value: Uint8Array): unknown;
  /** The value of `key`; waits for the key. */
  get(key: string): BytesLike | PromiseLike<BytesLike>;
  /** Adds `amount` to the decimal number at `key`, 0 if there is none, atomically; the sum. Amounts
   * beyond 2^53 come as a BigInt. */
  add(key: string, amount: number): number | bigint | PromiseLike<number | bigint>;
  /** Whether all `keys` are there. Does not wait. */
  check(keys: string[]): boolean | PromiseLike<boolean>;
  /** Sets `key` to `desired` if its value is `expected`, or if it has none and `expected` is empty,
   * atomically; the value then, `expected` if there is none. */
  compareSet(
    key: string,
    expected: Uint8Array,
    desired: Uint8Array,
  ): BytesLike | PromiseLike<BytesLike>;
  /** Removes `key`; whether it was there. */
  deleteKey(key: string): boolean | PromiseLike<boolean>;
  /** Appends `value` to the value of `key`, empty if there is none, atomically. */
  append?(key: string, value: Uint8Array): unknown;
  /** Waits until all `keys` are there, up to `timeout`, ms, or as long as `get` does. */
  wait?(keys: string[], options?: { timeout: number }): unknown;
  /** The values of `keys`; waits for them. */
  multiGet?(keys: string[]): BytesLike[] | PromiseLike<BytesLike[]>;
  /** Sets several keys. */
  multiSet?(keys: string[], values: Uint8Array[]): unknown;
  /** The number of keys. */
  numKeys?(): number | PromiseLike<number>;
  /** All keys. */
  listKeys?(): string[] | PromiseLike<string[]>;
  /** Appends `value` to the queue `key`. */
  queuePush?(key: string, value: Uint8Array): unknown;
  /** Takes the first value of the queue `key`. If there is none, it waits for one if `block`, else
   * it throws an error whose `kind` is `QueueEmpty`. */
  queuePop?(key: string, options: { block: boolean }): BytesLike | PromiseLike<BytesLike>;
  /** Length of the queue `key`. */
  queueLen?(key: string): number | PromiseLike<number>;
  /** Waits until `worldSize` callers came to the barrier `key`, up to `timeout`, ms, or as long as
   * `get` does. */
  barrier?(key: string, worldSize: number, options?: { timeout: number }): unknown;
}
