// Ranks that come and go: who is in which quorum, and what becomes of the model. The ranks are
// those of the Node package, in this process, and meet in a store as tabs do.

import { readFileSync } from "node:fs";
import type { Pr } from "../../src/rooms/room";
import { newRoomName } from "../../src/rooms/room";
import { describe } from "../../src/survive/describe";
import { survive, type Change, type Report, type Step } from "../../src/survive/program";
import { readExamples } from "../../src/train/model";
import { expect, test } from "../servers";

const NODE_PACKAGE = new URL("../../../bindings-node/js/index.js", import.meta.url).href;
// Both packages have the same declarations.
const pr = (await import(NODE_PACKAGE)) as Pr;
const DIGITS = new URL("../../../tests/data/digits.csv", import.meta.url);
const { training } = readExamples(readFileSync(DIGITS, "utf8"));

/** A rank that trains in a room. */
class Rank {
  readonly reports: Report[] = [];
  readonly #wish = { leaves: false };
  readonly #ended: Promise<void>;
  #heard = () => {};

  constructor(
    url: string,
    room: string,
    readonly id: string,
  ) {
    const me = { id, name: "Node" };
    const report = (news: Report) => {
      this.reports.push(news);
      this.#heard();
    };
    this.#ended = survive(pr, { url, room, size: 1 }, me, training, report, this.#wish);
    this.#ended.catch(() => {});
  }

  get step(): Step | null {
    return this.reports.findLast((one) => one.kind === "step") ?? null;
  }

  get change(): Change | null {
    return this.reports.findLast((one) => one.kind === "change") ?? null;
  }

  /** Waits until what it told last is so. */
  async until(isSo: (rank: Rank) => boolean): Promise<void> {
    while (!isSo(this)) {
      await Promise.race([
        this.#ended.then(() => Promise.reject(new Error(`${this.id} has ended`))),
        new Promise<void>((resolve) => (this.#heard = resolve)),
      ]);
    }
  }

  /** Until it trains with so many, and all have the same bits. */
  async trainsWith(count: number): Promise<void> {
    await this.until(({ change }) => change?.quorum.members.length === count);
    const from = this.change!.step;
    await this.until(({ step }) => step !== null && step.step > from && step.isSame !== null);
    expect(this.step!.isSame).toBe(true);
  }

  async leave(): Promise<void> {
    this.#wish.leaves = true;
    await this.#ended;
  }
}

test("who comes takes the state of the others, and who leaves takes nothing along", async ({
  store,
}) => {
  const room = newRoomName();
  const first = new Rank(store, room, "first");
  await first.trainsWith(1);
  const alone = first.step!;
  const others = [new Rank(store, room, "second"), new Rank(store, room, "third")];
  await Promise.all([first, ...others].map((rank) => rank.trainsWith(3)));
  const [second, third] = others as [Rank, Rank];
  const came = second.change!;
  expect(came.step).toBeGreaterThanOrEqual(alone.step);
  expect(third.change!.quorum.number).toBe(came.quorum.number);
  const healed = others.flatMap(({ reports }) =>
    reports.flatMap((one) => (one.kind === "change" ? one.heals : [])),
  );
  expect(healed.length).toBeGreaterThanOrEqual(2);
  await first.leave();
  await Promise.all(others.map((rank) => rank.trainsWith(2)));
  expect(second.change!.gone.map(({ id }) => id)).toEqual(["first"]);
  expect(second.change!.step).toBeGreaterThan(came.step);
  expect(describe(second.change!)).toMatch(/^Quorum \d+: 2 ranks from step \d+ on; gone: Node/);
  expect(second.step!.loss).toBeLessThan(alone.loss);
  await Promise.all(others.map((rank) => rank.leave()));
});

test("two parts that were apart become one, with one state", async ({ store }) => {
  const room = newRoomName();
  const prefix = `rooms/${room}/survive`;
  const shared = await pr.WebSocketStore.connect(store);
  const one = new Rank(store, room, "one");
  await one.trainsWith(1);
  // Somebody has closed the next quorum without it, and trains there.
  const number = one.change!.quorum.number + 1;
  const lonely = JSON.stringify([{ id: "lonely", name: "Node" }]);
  await shared.set(`${prefix}/${number}/closed`, new TextEncoder().encode(lonely));
  await shared.set(`${prefix}/newest`, new TextEncoder().encode(String(number)));
  const other = new Rank(store, room, "lonely");
  await Promise.all([one, other].map((rank) => rank.trainsWith(2)));
  expect(other.step!.fingerprint).toMatch(/^[0-9a-f]{8}$/);
  await Promise.all([one.leave(), other.leave()]);
});

test("all that come at once train together in the end", async ({ store }) => {
  const room = newRoomName();
  const ranks = ["a", "b", "c", "d", "e"].map((id) => new Rank(store, room, id));
  await Promise.all(ranks.map((rank) => rank.trainsWith(5)));
  const numbers = ranks.map(({ change }) => change!.quorum.number);
  expect(new Set(numbers).size).toBe(1);
  await Promise.all(ranks.map((rank) => rank.leave()));
});
