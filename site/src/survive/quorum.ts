// Who trains together when ranks come and go: they agree on it in a store, which needs to know
// nothing of that. Each attempt has a number. Whoever takes part writes itself down there; the
// first that finds all it expects, or has waited long enough, closes the list, once for all. Who
// came too late knocks, and the members, who look for that, meet it in the next one. Knows no
// training.

import type { Store } from "polyrank-web";

/** One who takes part. */
export interface Member {
  /** What nobody else is called. */
  id: string;
  /** For people: "tab", "worker", "Python". */
  name: string;
}

/** Those who train together until one goes or another comes. */
export interface Quorum {
  number: number;
  /** By their ranks. */
  members: Member[];
  /** Who reads this. */
  rank: number;
  /** How often somebody had knocked before it was closed: who came too late knocks again. */
  knocks: number;
}

/** How long those are waited for who are expected and do not come, in milliseconds. */
export const PATIENCE_MS = 3000;
/** Between two looks. */
const PAUSE_MS = 20;
const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** What is known of quorums in a room. */
export class Meetings {
  constructor(
    private readonly store: Store,
    private readonly prefix: string,
    private readonly me: Member,
  ) {}

  /**
   * Meets the others in the quorum after `last`, the one that this rank was in, or after the
   * newest that there is. Those of `expected` are waited for; a rank that was in none waits for
   * the members of the newest.
   */
  async join(last: Quorum | null, expected: readonly string[]): Promise<Quorum> {
    const newest = await this.#newest();
    let number = Math.max(newest, last?.number ?? 0) + 1;
    let awaited = expected;
    if (last === null && newest > 0) {
      awaited = (await this.#closed(newest)).map(({ id }) => id);
      await this.#knock();
    } else if (last !== null && newest > last.number) {
      // Others have met without this one, and shall meet it.
      awaited = [...expected, ...(await this.#closed(newest)).map(({ id }) => id)];
      await this.#knock();
    }
    for (;;) {
      const knocks = await this.knocks();
      await this.store.append(this.#key(number, "came"), encode(`${JSON.stringify(this.me)}\n`));
      const members = await this.#close(number, awaited);
      const rank = members.findIndex(({ id }) => id === this.me.id);
      if (rank >= 0) {
        return { number, members, rank, knocks };
      }
      await this.#knock();
      awaited = members.map(({ id }) => id);
      number += 1;
    }
  }

  /** How often somebody has knocked. */
  async knocks(): Promise<number> {
    return this.store.add(`${this.prefix}/knocks`, 0);
  }

  /** Where the members of a quorum make their group: a prefix that no other has. */
  place(number: number): string {
    return `${this.prefix}/group/${number}`;
  }

  async #knock(): Promise<void> {
    await this.store.add(`${this.prefix}/knocks`, 1);
  }

  /** The number of the quorum that was closed last; 0: none was. */
  async #newest(): Promise<number> {
    const key = `${this.prefix}/newest`;
    return (await this.store.check([key])) ? Number(decode(await this.store.get(key))) : 0;
  }

  /** Who is in the quorum, once that is closed, by this rank or another. */
  async #close(number: number, awaited: readonly string[]): Promise<Member[]> {
    const until = performance.now() + PATIENCE_MS;
    for (;;) {
      if (await this.store.check([this.#key(number, "closed")])) {
        return this.#closed(number);
      }
      const came = await this.#came(number);
      const isHere = (id: string) => came.some((member) => member.id === id);
      if (awaited.every(isHere) || performance.now() > until) {
        const ours = JSON.stringify(came);
        const key = this.#key(number, "closed");
        const closed = decode(await this.store.compareSet(key, encode(""), encode(ours)));
        if (closed === ours) {
          await this.#raise(number);
        }
        return JSON.parse(closed) as Member[];
      }
      await new Promise((resume) => setTimeout(resume, PAUSE_MS));
    }
  }

  /** Makes this the number of the newest quorum, unless a later one was closed meanwhile. */
  async #raise(number: number): Promise<void> {
    let now = "";
    do {
      const [before, after] = [encode(now), encode(String(number))];
      now = decode(await this.store.compareSet(`${this.prefix}/newest`, before, after));
    } while (Number(now) < number);
  }

  async #came(number: number): Promise<Member[]> {
    const lines = decode(await this.store.get(this.#key(number, "came"))).trim().split("\n");
    return lines.map((line) => JSON.parse(line) as Member);
  }

  async #closed(number: number): Promise<Member[]> {
    return JSON.parse(decode(await this.store.get(this.#key(number, "closed")))) as Member[];
  }

  #key(number: number, name: string): string {
    return `${this.prefix}/${number}/${name}`;
  }
}
