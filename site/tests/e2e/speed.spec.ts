// The page *Speed* shows every file of results that is committed, as `polyrank bench` wrote it.

import { readdirSync, readFileSync } from "node:fs";
import {
  INPUTS,
  buildsOf,
  casesOf,
  comparisonsOf,
  contendersOf,
  inputsOf,
  isReport,
  merged,
  topics,
} from "../../src/speed/results";
import { formatProcessor, serversOf, startReports, storeReports } from "../../src/speed/rows";
import type { Page } from "@playwright/test";
import { expect, test } from "../servers";

const folder = new URL("../../../tests/bench/results/", import.meta.url);

/** The committed files, by processor and name; none, if there is no such folder. */
function committed(): { made_by: string }[] {
  const known = readdirSync(new URL("..", folder)).includes("results");
  const names = known ? readdirSync(folder, { recursive: true, encoding: "utf8" }) : [];
  const read = (name: string) =>
    JSON.parse(readFileSync(new URL(name, folder), "utf8")) as { made_by: string };
  const files = names.filter((name) => name.endsWith(".json"));
  return files.sort((a, b) => a.localeCompare(b)).map(read);
}

/** The table of one of the measures, or of the first that there is. */
function tableOf(page: Page, inputs: string = INPUTS.join("|")) {
  return page.getByTestId(new RegExp(`^speed-table-(${inputs})$`)).first();
}

test("every committed result is shown, with machine and versions", async ({ page, site }) => {
  const errors: Error[] = [];
  page.on("pageerror", (error) => errors.push(error));
  await page.goto(`${site}/speed/`);
  const comparisons = comparisonsOf(merged(committed().filter(isReport)));
  if (comparisons.length === 0) {
    await expect(page.getByText("There are no results here yet")).toBeVisible();
  }
  const all = comparisons.flatMap(({ reports }, index) =>
    reports.map((report) => ({ report, index })),
  );
  for (const { report, index } of all) {
    await page.getByRole("combobox", { name: "Comparison" }).selectOption({ index });
    const { machine } = report;
    const processors = page.getByRole("combobox", { name: "Processor" });
    await processors.selectOption(machine.processor.name);
    const facts = page.getByTestId("speed").locator(".facts");
    await expect(facts).toContainText(formatProcessor(machine));
    for (const version of Object.values(report.versions).flatMap((one) => Object.values(one))) {
      await expect(page.getByTestId("speed")).toContainText(version);
    }
    for (const build of buildsOf(report)) {
      await expect(page.getByTestId("speed")).toContainText(build);
    }
    for (const topic of topics(report)) {
      await page.getByRole("combobox", { name: "Operation" }).selectOption(topic.operation);
      await page.getByRole("combobox", { name: "Ranks" }).selectOption(String(topic.ranks));
      const kinds = page.getByRole("combobox", { name: "Elements" });
      if (await kinds.isVisible()) {
        await kinds.selectOption(topic.kind);
      }
      const measures = inputsOf(report, topic);
      await expect(page.getByTestId(/^speed-table-/)).toHaveCount(measures.length);
      const isOld = !measures.includes("rewritten");
      await expect(page.getByText("Only with inputs untouched")).toHaveCount(isOld ? 1 : 0);
      for (const inputs of measures) {
        const cases = casesOf(report, topic, inputs);
        await expect(tableOf(page, inputs).locator("tbody tr")).toHaveCount(cases.length);
        const heads = tableOf(page, inputs).locator("thead th");
        await expect(heads).toHaveText(["size", ...contendersOf(cases)]);
      }
    }
  }
  expect(errors).toEqual([]);
});

test("nothing can be chosen before the page's script runs", async ({ page, site }) => {
  await page.route("**/*.js", (route) => route.abort());
  await page.goto(`${site}/speed/`);
  await expect(tableOf(page)).toBeVisible();
  await expect(page.getByRole("combobox", { name: "Comparison" })).toBeDisabled();
});

test("it opens with an allreduce beside Gloo, Open MPI and MPICH", async ({ page, site }) => {
  await page.goto(`${site}/speed/`);
  await expect(page.getByRole("combobox", { name: "Operation" })).toHaveValue("allreduce");
  const heads = tableOf(page).locator("thead th");
  for (const library of ["polyrank python", "gloo", "openmpi", "mpich"]) {
    await expect(heads.filter({ hasText: library }).first()).toBeVisible();
  }
});

test("stores and starts have tables, or it is said that they have none", async ({ page, site }) => {
  await page.goto(`${site}/speed/`);
  const stores = storeReports(committed());
  const shownStores = page.getByTestId("store-speed");
  await expect(shownStores).toHaveCount(stores.length);
  await expect(page.getByText("no figures of stores here yet")).toHaveCount(
    stores.length === 0 ? 1 : 0,
  );
  for (const [index, report] of stores.entries()) {
    const heads = shownStores.nth(index).locator("thead th");
    await expect(heads).toHaveText(["clients", "request", ...serversOf(report)]);
    await expect(shownStores.nth(index)).toContainText(report.machine.cpu);
  }
  const starts = startReports(committed());
  const shownStarts = page.getByTestId("start-speed");
  await expect(shownStarts).toHaveCount(starts.length);
  await expect(page.getByText("no figures of starts here yet")).toHaveCount(
    starts.length === 0 ? 1 : 0,
  );
  for (const [index, report] of starts.entries()) {
    await expect(shownStarts.nth(index).locator("tbody tr")).toHaveCount(report.rows.length);
    await expect(shownStarts.nth(index)).toContainText(report.machine.cpu);
  }
});
