// The base class of stores as classes of a program extend it, by hand: `Store` of `index.d.ts`.

import type { BytesLike, Store, StoreMethods, WaitOptions } from "../../index.js";

/**
 * What a class that extends {@link Store} is without methods of its own. It must have the first six
 * of {@link StoreMethods}, and may have the others, which wait or not, as it likes: that is why
 * they are declared to give anything here.
 */
export abstract class OwnStore implements StoreMethods {
  /** For classes that are derived from it. */
  constructor();
  abstract set(key: string, value: Uint8Array): unknown;
  abstract get(key: string): BytesLike | PromiseLike<BytesLike>;
  abstract add(key: string, amount: number): number | bigint | PromiseLike<number | bigint>;
  abstract check(keys: string[]): boolean | PromiseLike<boolean>;
  abstract compareSet(
    key: string,
    expected: Uint8Array,
    desired: Uint8Array,
  ): BytesLike | PromiseLike<BytesLike>;
  abstract deleteKey(key: string): boolean | PromiseLike<boolean>;
  append(...given: Parameters<Store["append"]>): any;
  wait(keys: readonly string[], options?: WaitOptions & { timeout?: number }): any;
  multiGet(...given: Parameters<Store["multiGet"]>): any;
  multiSet(...given: Parameters<Store["multiSet"]>): any;
  numKeys(...given: Parameters<Store["numKeys"]>): any;
  listKeys(...given: Parameters<Store["listKeys"]>): any;
  queuePush(...given: Parameters<Store["queuePush"]>): any;
  queuePop(...given: Parameters<Store["queuePop"]>): any;
  queueLen(...given: Parameters<Store["queueLen"]>): any;
  barrier(...given: Parameters<Store["barrier"]>): any;
  readonly timeout: number;
  clone(options?: WaitOptions): Promise<Store>;
  hasExtendedApi(): boolean;
  setTimeout(timeout: number): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  readonly [Symbol.toStringTag]: string;
}
