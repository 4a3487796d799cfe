// The page *Speed* shows every file of results that is committed, as `polyrank bench` wrote it.

import { readdirSync, readFileSync } from "node:fs";
import { casesOf, contendersOf, merged, topics, type Report } from "../../src/speed/results";
import { expect, test } from "../servers";

const folder = new URL("../../../tests/bench/results/", import.meta.url);

/** The committed results, in the order of the page; none, if there is no such folder. */
function committed(): Report[] {
  const known = readdirSync(new URL("..", folder)).includes("results");
  const names = known ? readdirSync(folder).filter((name) => name.endsWith(".json")) : [];
  const read = (name: string) => JSON.parse(readFileSync(new URL(name, folder), "utf8")) as Report;
  return merged(names.sort((a, b) => a.localeCompare(b)).map(read));
}

test("every committed result is shown, with machine and versions", async ({ page, site }) => {
  const errors: Error[] = [];
  page.on("pageerror", (error) => errors.push(error));
  await page.goto(`${site}/speed/`);
  const reports = committed();
  if (reports.length === 0) {
    await expect(page.getByText("There are no results here yet")).toBeVisible();
  }
  for (const [index, report] of reports.entries()) {
    await page.getByRole("combobox", { name: "Comparison" }).selectOption({ index });
    await expect(page.getByTestId("speed")).toContainText(report.machine.cpu);
    for (const version of Object.values(report.versions).flatMap((one) => Object.values(one))) {
      await expect(page.getByTestId("speed")).toContainText(version);
    }
    for (const topic of topics(report)) {
      await page.getByRole("combobox", { name: "Operation" }).selectOption(topic.operation);
      await page.getByRole("combobox", { name: "Ranks" }).selectOption(String(topic.ranks));
      const kinds = page.getByRole("combobox", { name: "Elements" });
      if (await kinds.isVisible()) {
        await kinds.selectOption(topic.kind);
      }
      const cases = casesOf(report, topic);
      await expect(page.getByTestId("speed-table").locator("tbody tr")).toHaveCount(cases.length);
      const heads = page.getByTestId("speed-table").locator("thead th");
      await expect(heads).toHaveText(["size", ...contendersOf(cases)]);
    }
  }
  expect(errors).toEqual([]);
});
