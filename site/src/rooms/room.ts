// Where ranks meet that nobody started together: the first to come says how many there shall be,
// and a counter in the store gives each its number. Knows the store, and nothing of pages.

import type * as Polyrank from "polyrank-web";

/** The package, `polyrank-web` or `polyrank`: they are the same to this. */
export type Pr = typeof Polyrank;

/** What it takes to find the others. */
export interface Ticket {
  /** The store's address, `ws://host:port/`. */
  url: string;
  room: string;
  /** How many ranks there shall be; the first to come decides. */
  size: number;
}

/** A place in a group that is complete. */
export interface Place {
  rank: number;
  size: number;
  /** How many groups this room has had before. */
  generation: number;
  /** Where the ranks meet; other groups of the room have their own. */
  store: Polyrank.Store;
}

/** Why there is no place. */
export class RoomIsFull extends Error {
  override name = "RoomIsFull";

  constructor(
    readonly size: number,
    readonly generation: number,
  ) {
    super(`All ${size} ranks of this room have come.`);
  }
}

/** How long a rank waits for the others, in milliseconds. */
const PATIENCE_MS = 15 * 60 * 1000;
const HERE = "here";
const LEFT = "left";

const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** A room as the store knows it. */
export class Room {
  readonly #prefix: string;

  private constructor(
    private readonly pr: Pr,
    private readonly store: Polyrank.Store,
    private readonly ticket: Ticket,
  ) {
    this.#prefix = `rooms/${ticket.room}`;
  }

  /** Connects to the store. */
  static async enter(pr: Pr, ticket: Ticket): Promise<Room> {
    const store = await pr.WebSocketStore.connect(ticket.url, { timeout: 10_000 });
    return new Room(pr, store, ticket);
  }

  /**
   * Waits until all are there; `tell` hears how many are missing. A rank that gives up while it
   * waits sends the others to the next group of the room.
   */
  async join(signal: AbortSignal, tell: (missing: number, size: number) => void): Promise<Place> {
    const size = Number(await this.#settle("size", String(this.ticket.size)));
    for (;;) {
      const generation = Number(await this.#settle("generation", "0"));
      const rank = (await this.store.add(this.#key(generation, "members"), 1)) - 1;
      if (rank >= size) {
        throw new RoomIsFull(size, generation);
      }
      if (await this.#waitForAll(generation, rank, size, signal, tell)) {
        const prefix = this.#key(generation, "group");
        const store = new this.pr.PrefixStore(prefix, this.store);
        return { rank, size, generation, store };
      }
    }
  }

  /** Makes room for another group, unless somebody has. */
  async startAgain(generation: number): Promise<void> {
    const [now, next] = [generation, generation + 1].map((number) => encode(String(number)));
    await this.store.compareSet(`${this.#prefix}/generation`, now!, next!);
  }

  /** Whether all came. */
  async #waitForAll(
    generation: number,
    rank: number,
    size: number,
    signal: AbortSignal,
    tell: (missing: number, size: number) => void,
  ): Promise<boolean> {
    const key = (other: number) => this.#key(generation, `rank-${other}`);
    try {
      // Somebody who gave up may have written here that this rank is not to come.
      if (decode(await this.store.compareSet(key(rank), encode(""), encode(HERE))) === LEFT) {
        return false;
      }
      for (let other = 0; other < size; other += 1) {
        if (other > rank) {
          tell(size - other, size);
        }
        await this.store.wait([key(other)], { timeout: PATIENCE_MS, signal });
        if (decode(await this.store.get(key(other))) === LEFT) {
          return false;
        }
      }
    } catch (error) {
      await this.#giveUp(generation, key, rank, size);
      throw error;
    }
    return true;
  }

  /** Sends the others, who wait for this rank or come later, to the next group. */
  async #giveUp(
    generation: number,
    key: (other: number) => string,
    rank: number,
    size: number,
  ): Promise<void> {
    try {
      await this.startAgain(generation);
      await this.store.set(key(rank), encode(LEFT));
      for (let other = rank + 1; other < size; other += 1) {
        await this.store.compareSet(key(other), encode(""), encode(LEFT));
      }
    } catch {
      // Why it gave up is worth more than that it could not say so.
    }
  }

  /** What the first to come wrote. */
  async #settle(name: string, proposal: string): Promise<string> {
    const key = `${this.#prefix}/${name}`;
    return decode(await this.store.compareSet(key, encode(""), encode(proposal)));
  }

  #key(generation: number, name: string): string {
    return `${this.#prefix}/${generation}/${name}`;
  }
}

/** A name that nobody else has chosen, short enough to read out. */
export function newRoomName(): string {
  const letters = "abcdefghjkmnpqrstuvwxyz23456789";
  const random = crypto.getRandomValues(new Uint8Array(6));
  return [...random].map((value) => letters[value % letters.length]).join("");
}
