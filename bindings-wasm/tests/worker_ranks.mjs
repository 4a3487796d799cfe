// Groups of ranks in Workers of a page, which itself may be one of them. Runs in the page. Knows
// nothing of what ranks do.

import * as pr from "polyrank-web";
import { MessagePortStore } from "polyrank-web/workers";

export class Ranks {
  #ranks;

  /** `size` ranks; the last one is the page, if it `isRank`. */
  constructor(size, isRank = false) {
    this.store = new MessagePortStore();
    this.#ranks = Array.from({ length: size }, (_, rank) => {
      if (isRank && rank === size - 1) return new PageRank(this.store, rank, size);
      return new RankWorker(this.store.openPort(), rank, size);
    });
  }

  /** What a function, of which this is the text, gives in the ranks; an error as its kind, rank and
   * text. */
  run(text, ranks = this.#ranks.keys()) {
    return Promise.all([...ranks].map((rank) => this.#ranks[rank].run(text)));
  }

  terminate(rank) {
    this.#ranks[rank].terminate();
  }

  async end() {
    const left = await this.run("({ pr }) => pr.destroyProcessGroup().then(() => null)");
    this.#ranks.forEach((rank) => rank.terminate());
    return left;
  }
}

export class RankWorker {
  #worker = new Worker("/bindings-wasm/tests/worker_rank.mjs", { type: "module" });
  #waiting = new Map();
  #last = 0;

  constructor(port, rank, size, groupName = undefined) {
    this.#worker.postMessage({ port, rank, size, groupName }, [port]);
    this.#worker.onmessage = ({ data: { id, value } }) => this.#waiting.get(id).resolve(value);
    this.#worker.onerror = ({ message }) => {
      this.#waiting.forEach(({ reject }) => reject(new Error(message)));
    };
  }

  run(text) {
    this.#last += 1;
    const id = this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, text });
    });
  }

  terminate() {
    this.#worker.terminate();
  }
}

class PageRank {
  #joined;

  constructor(store, rank, size) {
    const joining = pr.initProcessGroup({ store, rank, worldSize: size });
    this.#joined = joining.then((group) => ({ pr, group, rank, store }));
  }

  async run(text) {
    try {
      return await (0, eval)(text)(await this.#joined);
    } catch (error) {
      return { kind: error.kind ?? error.name, rank: error.rank, text: error.message };
    }
  }

  terminate() {}
}
