// "Train together" in a browser: the loss falls, and both pages end with the same weights.

import type { Page } from "@playwright/test";
import { newRoomName } from "../../src/rooms/room";
import { expect, test } from "../servers";

/** The cross-entropy of ten digits that are all as likely. */
const UNTRAINED = Math.log(10);

const loss = async (page: Page) => Number(await page.getByTestId("loss").innerText());

test("two pages train one model, and it reads a drawn digit", async ({ context, site, store }) => {
  const address = `${site}/demos/train?room=${newRoomName()}&size=2&store=${store}`;
  const pages = [await context.newPage(), await context.newPage()];
  await pages[0]!.goto(address);
  await expect(pages[0]!.getByTestId("status")).toHaveText("Waiting for 1 more rank of 2.");
  await pages[1]!.goto(address);
  await expect(pages[0]!.getByTestId("loss")).toBeVisible();
  for (const page of pages) {
    await expect(page.getByTestId("epoch")).toHaveText("40 of 40", { timeout: 90_000 });
    await expect(page.getByTestId("verdict")).toHaveText("✓ the same bits on all 2 ranks");
    await expect(page.getByTestId("status")).toHaveText("Done.");
    expect(await loss(page)).toBeLessThan(0.5 * UNTRAINED);
    expect(parseFloat(await page.getByTestId("accuracy").innerText())).toBeGreaterThan(93);
  }
  const prints = await Promise.all(pages.map((p) => p.getByTestId("fingerprint").innerText()));
  expect(prints[0]).toMatch(/^[0-9a-f]{8}$/);
  expect(prints[1]).toBe(prints[0]);

  await drawZero(pages[0]!);
  await expect(pages[0]!.getByTestId("guess")).toHaveText("It looks like a 0.");
});

async function drawZero(page: Page): Promise<void> {
  const sheet = page.getByTestId("sheet");
  await sheet.scrollIntoViewIfNeeded();
  const box = (await sheet.boundingBox())!;
  const at = (turn: number) => {
    const angle = 2 * Math.PI * turn;
    const [x, y] = [0.5 + 0.18 * Math.cos(angle), 0.5 + 0.32 * Math.sin(angle)];
    return [box.x + x * box.width, box.y + y * box.height] as const;
  };
  await page.mouse.move(...at(0));
  await page.mouse.down();
  for (let step = 1; step <= 24; step += 1) {
    await page.mouse.move(...at(step / 24));
  }
  await page.mouse.up();
}
