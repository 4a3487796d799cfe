// "Watch the schedule" in a browser: every algorithm plays to its end and keeps its contract.

import { collectives } from "../../../bindings-wasm/js/drawing.js";
import { expect, test } from "../servers";

for (const { name, algorithms } of collectives()) {
  test(`${name}: every algorithm is drawn and ends as promised`, async ({ page, site }) => {
    const errors: Error[] = [];
    page.on("pageerror", (error) => errors.push(error));
    // Without motion nothing plays by itself.
    await page.emulateMedia({ reducedMotion: "reduce" });
    await page.goto(`${site}/demos/schedule`);
    await page.getByTestId("collective").selectOption(name);
    await page.getByTestId("ranks").fill("4");
    for (const algorithm of algorithms) {
      // One of them says besides that it is picked.
      const own = new RegExp(`^${algorithm.name}( picked)?$`);
      await page.getByRole("radio", { name: own }).click();
      const picture = page.getByRole("img", { name: `${algorithm.name} ${name} of 4 ranks` });
      await expect(picture).toBeVisible();
      expect(await coloursOf(picture)).toBeGreaterThan(4);
      await page.getByLabel("Time").press("End");
      await expect(page.getByTestId("verdict")).toContainText("every rank holds what");
      const [round, , rounds] = (await page.getByTestId("round").innerText()).split(" ");
      expect(round).toBe(rounds);
      await expect(page.getByTestId("bands")).toContainText("polyrank picks");
    }
    expect(errors).toEqual([]);
  });
}

test("it plays, pauses and steps", async ({ page, site }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.goto(`${site}/demos/schedule`);
  await expect(page.getByTestId("round")).toHaveText("1 of 8");
  await page.getByTestId("next").click();
  await expect(page.getByTestId("round")).toHaveText("2 of 8");
  await page.getByRole("button", { name: "Step back" }).click();
  await expect(page.getByTestId("round")).toHaveText("1 of 8");
  await page.getByTestId("play").click();
  await expect(page.getByTestId("play")).toHaveText("Pause");
  await page.getByLabel("Speed").selectOption("4");
  await expect(page.getByTestId("verdict")).toBeVisible();
  await expect(page.getByTestId("play")).toHaveText("Play again");
});

test("the cost curve says where the choice changes", async ({ page, site }) => {
  await page.goto(`${site}/demos/schedule`);
  await expect(page.getByTestId("bands")).toContainText("one_shot to 11.3 KiB, two_shot beyond");
  await page.getByTestId("ranks").fill("16");
  await expect(page.getByTestId("bands")).toContainText("recursive_doubling");
});

/** How many different colours a canvas shows. */
function coloursOf(picture: import("@playwright/test").Locator): Promise<number> {
  return picture.evaluate((element) => {
    const canvas = element as HTMLCanvasElement;
    const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
}
