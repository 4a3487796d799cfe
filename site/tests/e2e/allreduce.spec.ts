// "Allreduce in your tabs" in a browser: two pages and a Node rank in one group, running the same
// program; what happens when a tab is closed; workers of one tab.

import type { Page } from "@playwright/test";
import { takeTurns, VALUES, type Turn, type Wishes } from "../../src/allreduce/program";
import { newRoomName, Room, type Pr } from "../../src/rooms/room";
import { expect, test } from "../servers";

const NODE_PACKAGE = new URL("../../../bindings-node/js/index.js", import.meta.url).href;

const address = (site: string, store: string, room: string, size: number) =>
  `${site}/demos/allreduce?room=${room}&size=${size}&store=${store}`;

/** A rank of this process that takes part until it is told to stop. */
class NodeRank {
  turns: Turn[] = [];
  pr!: Pr;
  wishes: Wishes = { values: new Array<number>(VALUES).fill(1), operator: null, payload: null };
  #isOver = false;
  #ended: Promise<unknown> = Promise.resolve();

  /** Waits for the others, and takes turns with them. */
  async join(store: string, name: string, size: number): Promise<void> {
    // Both packages have the same declarations.
    this.pr = (await import(NODE_PACKAGE)) as Pr;
    this.turns = [];
    const room = await Room.enter(this.pr, { url: store, room: name, size });
    const place = await room.join(new AbortController().signal, () => {});
    await this.pr.initProcessGroup({
      store: place.store,
      rank: place.rank,
      worldSize: place.size,
    });
    this.#ended = takeTurns(
      this.pr,
      () => this.wishes,
      (turn) => this.turns.push(turn),
      () => this.#isOver,
    ).catch((error: unknown) => error);
  }

  /** What ended its turns; undefined if it was told to stop. */
  async ended(): Promise<unknown> {
    const reason = await this.#ended;
    await this.pr.abortProcessGroup();
    return reason;
  }

  stop(): Promise<unknown> {
    this.#isOver = true;
    return this.ended();
  }
}

const results = async (page: Page) =>
  (await page.getByTestId("result").allInnerTexts()).map(Number);

async function setValue(page: Page, index: number, value: number): Promise<void> {
  const slider = page.getByTestId("sliders").getByRole("slider").nth(index);
  await slider.fill(String(value));
}

test("two pages and a Node rank add up what their users set", async ({ context, site, store }) => {
  const room = newRoomName();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await first.goto(address(site, store, room, 3));
  await expect(first.getByTestId("status")).toHaveText("Waiting for 2 more ranks of 3.");
  await second.goto(address(site, store, room, 3));
  await expect(second.getByTestId("status")).toHaveText("Waiting for 1 more rank of 3.");
  const rank = new NodeRank();
  await rank.join(store, room, 3);
  for (const page of [first, second]) {
    await expect(page.getByTestId("status")).toHaveText("Running with 3 ranks.");
  }
  for (let index = 0; index < VALUES; index += 1) {
    await setValue(first, index, index);
    await setValue(second, index, 0.5);
  }
  const sum = Array.from({ length: VALUES }, (_, index) => index + 0.5 + 1);
  for (const page of [first, second]) {
    await expect.poll(() => results(page)).toEqual(sum);
  }
  await expect.poll(() => rank.turns.at(-1)!.result).toEqual(sum);

  await second.getByRole("radio", { name: "MAX" }).click();
  const most = Array.from({ length: VALUES }, (_, index) => Math.max(index, 1));
  for (const page of [first, second]) {
    await expect.poll(() => results(page)).toEqual(most);
  }
  // Playwright has the browser tell it every byte that a page sends or gets. A size that shows
  // that the choice arrives is enough: with 1 MiB, its next question waited for all those bytes.
  await first.getByLabel("Size of the tensor").selectOption("4 KiB");
  await expect.poll(() => rank.turns.at(-1)!.payloadBytes).toBe(4096);
  await expect.poll(() => results(second)).toEqual(most);
  await expect(first.getByTestId("latency")).toHaveText(/\d+(\.\d+)? (µs|ms|s)/);

  // A tab that is closed is named everywhere, and the others may start again.
  await second.close();
  await expect(first.getByTestId("status")).toHaveText("The group has ended: rank 1 is gone.");
  expect(await rank.ended()).toMatchObject({ kind: "RankFailed", rank: 1 });
  await first.getByTestId("again").click();
  await expect(first.getByTestId("status")).toHaveText("Waiting for 2 more ranks of 3.");

  // They do, with a tab that was not there before, and come to a second result.
  const third = await context.newPage();
  await third.goto(address(site, store, room, 3));
  await rank.join(store, room, 3);
  for (const page of [first, third]) {
    await expect(page.getByTestId("status")).toHaveText("Running with 3 ranks.");
  }
  for (let index = 0; index < VALUES; index += 1) {
    await setValue(first, index, 10 - index);
    await setValue(third, index, 0.5);
  }
  const again = Array.from({ length: VALUES }, (_, index) => 10 - index + 0.5 + 1);
  for (const page of [first, third]) {
    await expect.poll(() => results(page)).toEqual(again);
  }
  await expect.poll(() => rank.turns.at(-1)?.result).toEqual(again);
});

test("workers of one tab are ranks too", async ({ page, site, store }) => {
  await page.goto(`${site}/demos/allreduce?store=${store}`);
  await page.getByTestId("size").fill("4");
  await page.getByTestId("open").click();
  for (const missing of ["3 more ranks", "2 more ranks", "1 more rank"]) {
    await expect(page.getByTestId("status")).toHaveText(`Waiting for ${missing} of 4.`);
    await page.getByTestId("add-worker").click();
  }
  await expect(page.getByTestId("status")).toHaveText("Running with 4 ranks.");
  await expect(page.getByTestId("sliders")).toHaveCount(4);
  const all = page.getByTestId("sliders").getByRole("slider");
  for (const [index, slider] of (await all.all()).entries()) {
    await slider.fill(String(index % VALUES));
  }
  const sum = Array.from({ length: VALUES }, (_, index) => 4 * index);
  await expect.poll(() => results(page)).toEqual(sum);
  await expect(page.getByText("the same bits on all 4 ranks here")).toBeVisible();
});

test("who leaves while others wait sends them on", async ({ context, site, store }) => {
  const room = newRoomName();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await first.goto(address(site, store, room, 3));
  await expect(first.getByTestId("status")).toHaveText("Waiting for 2 more ranks of 3.");
  await second.goto(address(site, store, room, 3));
  await expect(first.getByTestId("status")).toHaveText("Waiting for 1 more rank of 3.");
  await second.getByRole("button", { name: "Leave" }).click();
  await expect(second.getByTestId("status")).toHaveText("This tab has left the group.");
  await expect(first.getByTestId("status")).toHaveText("Waiting for 2 more ranks of 3.");
});

test("a store that is not there is said to be missing", async ({ page, site }) => {
  await page.goto(address(site, "ws://127.0.0.1:9/", "nobody", 2));
  await expect(page.getByTestId("status")).toHaveText("Could not join.");
  await expect(page.getByTestId("detail")).toContainText("a store at ws://127.0.0.1:9/");
  await expect(page.getByText("starts a store beside this page")).toBeVisible();
  await page.getByTestId("try-again").click();
  await expect(page.getByTestId("status")).toContainText("Connecting to the store");
});
