// Ranks that give up while a room fills: nobody counts on them, and the others meet in the room's
// next group. The store is the Node package's own.

import { expect, test } from "@playwright/test";
import { Room, type Place, type Pr } from "../../src/rooms/room";

const NODE_PACKAGE = new URL("../../../bindings-node/js/index.js", import.meta.url).href;
// Both packages have the same declarations.
const pr = (await import(NODE_PACKAGE)) as Pr;

type Store = InstanceType<Pr["HashStore"]>;

/** Something that happens once. */
class Signal {
  happen!: () => void;
  readonly happened = new Promise<void>((resolve) => (this.happen = resolve));
}

/** A rank of a room of two that meets the others in `store`; `changes` replace methods of it. */
async function rank(store: Store, changes: Partial<Store> = {}) {
  const changed = new Proxy(store, {
    get(target, name) {
      const value = Reflect.get(changes, name) ?? Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const connected = { connect: () => Promise.resolve(changed) };
  const there = { WebSocketStore: connected, PrefixStore: class {} } as unknown as Pr;
  const room = await Room.enter(there, { url: "ws://nowhere/", room: "here", size: 2 });
  const leaves = new AbortController();
  const waits = new Signal();
  const joined = room.join(leaves.signal, () => waits.happen());
  return { joined, leave: () => leaves.abort(), isWaiting: waits.happened };
}

const numbers = ({ rank, size, generation }: Place) => [rank, size, generation];

test("a rank that comes while another gives up does not count on it", async () => {
  const store = new pr.HashStore();
  const first = await rank(store);
  await first.isWaiting;
  const [counted, goesOn] = [new Signal(), new Signal()];
  const second = await rank(store, {
    async add(key: string, amount: number) {
      const sum = await store.add(key, amount);
      counted.happen();
      await goesOn.happened;
      return sum;
    },
  } as Partial<Store>);
  await counted.happened;
  first.leave();
  await expect(first.joined).rejects.toThrow();
  goesOn.happen();
  await second.isWaiting;
  const third = await rank(store);
  expect(numbers(await second.joined)).toEqual([0, 2, 1]);
  expect(numbers(await third.joined)).toEqual([1, 2, 1]);
});

test("a rank whose wait fails sends the next ones on", async () => {
  const store = new pr.HashStore();
  const first = await rank(store, {
    async wait(keys: string[]) {
      if (keys[0]?.endsWith("rank-1")) throw new Error("waited in vain");
    },
  } as Partial<Store>);
  await expect(first.joined).rejects.toThrow("waited in vain");
  const [second, third] = [await rank(store), await rank(store)];
  const places = [numbers(await second.joined), numbers(await third.joined)];
  expect(places.sort()).toEqual([
    [0, 2, 1],
    [1, 2, 1],
  ]);
});
