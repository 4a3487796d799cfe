// Pages on a telephone: nothing is wider than the screen.

import { expect, test } from "../servers";

const WIDTH = 360;
const PAGES = [
  "",
  "start/",
  "concepts/backends",
  "concepts/transports",
  "demos/survive",
  "reference/",
  "reference/environment",
  "reference/command-line",
  "speed/",
];

test.use({ viewport: { width: WIDTH, height: 740 } });

for (const path of PAGES) {
  test(`/${path} fits a screen of ${WIDTH} pixels`, async ({ page, site }) => {
    await page.goto(`${site}/${path}`);
    await expect(page.locator("h1, .name").first()).toBeVisible();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBeLessThanOrEqual(WIDTH);
  });
}

test("the controls of the page Speed fit, whatever they offer", async ({ page, site }) => {
  await page.goto(`${site}/speed/`);
  const comparison = page.getByRole("combobox", { name: "Comparison" });
  for (let index = 0; index < (await comparison.locator("option").count()); index += 1) {
    await comparison.selectOption({ index });
    for (const control of await page.getByTestId("speed").getByRole("combobox").all()) {
      const box = await control.boundingBox();
      expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(WIDTH);
    }
  }
});
