/**
 * `polyrank-web/workers`: ranks in Workers of one page, which meet and are connected without a
 * server.
 */

import type { Store } from "../index.js";

/** The base class of stores as this package's own classes have it. */
declare const PackageStore: abstract new () => Store;

/**
 * A store through which a page and its Workers meet, and by which they are connected. Who makes it
 * has its keys; the others connect to it over ports.
 *
 * Tensors go directly from rank to rank: through shared memory where the page is
 * `crossOriginIsolated`, else over a `MessagePort`. Who has the keys answers the store's requests,
 * also while it is not a rank, and must stay: a group is made, and split, with its help.
 *
 * If a Worker is terminated, the others get a `RankFailedError` that names its rank. Browsers tell
 * that by locks (`navigator.locks`), which pages of secure origins have; elsewhere operations wait
 * for their timeout.
 */
export class MessagePortStore extends PackageStore {
  /** An empty store, whose keys are here. */
  constructor();

  /**
   * Connects to the store that opened `port`.
   *
   * @param options - `timeout`: limit of connecting and of requests that wait, ms; 300 s unless
   * set, 0 is none.
   * @throws `InvalidArgumentError` if this port is connected already
   * @throws `DistNetworkError` if no store answers there
   */
  static connect(port: MessagePort, options?: { timeout?: number }): Promise<MessagePortStore>;

  /**
   * A port for one more rank, to be transferred to the Worker that it is for:
   * `worker.postMessage({ port }, [port])`. Each connects once.
   *
   * @throws `InvalidArgumentError` if this store is one that `connect` gave
   */
  openPort(): MessagePort;
}
