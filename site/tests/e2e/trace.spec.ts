// "Open a trace" in a browser: files are read, told and drawn, and nothing is sent.

import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import { expect, test } from "../servers";

/** What rank `rank` of three has recorded: rank 1 is in a broadcast, where the others reduce. */
function dump(rank: number): object {
  const entry = (sequence: number, operation: string, name: string, isDone: boolean) => ({
    record_id: sequence,
    pg_id: 0,
    process_group: ["default_pg", "default_pg"],
    collective_seq_id: sequence,
    profiling_name: `polyrank:${operation}`,
    name,
    time_created_ns: 1_000_000 * (sequence + 1),
    time_discovered_completed_ns: isDone ? 1_000_000 * (sequence + 1) + 500_000 : null,
    state: isDone ? "completed" : "started",
    frames: [{ name: "step", filename: "train.py", line: 40 + rank }],
  });
  const second = rank === 1 ? ["broadcast", "broadcast"] : ["all_reduce", "allreduce"];
  return {
    version: "2.10",
    rank,
    world_size: 3,
    dumped_at_ns: 12_002_000_000,
    pg_config: { "0": { name: "default_pg", desc: "default_pg", ranks: "[0, 1, 2]" } },
    entries: [
      entry(0, "barrier", "barrier", true),
      entry(1, second[0] ?? "", second[1] ?? "", false),
    ],
  };
}

function files(texts: string[]) {
  return texts.map((text, rank) => ({
    name: `rank_${rank}.json`,
    mimeType: "application/json",
    buffer: Buffer.from(text),
  }));
}

const DUMPS = [0, 1, 2].map((rank) => JSON.stringify(dump(rank)));
const FOUND =
  "Ranks 0 and 2 are in allreduce #1 of default_pg, and rank 1 is in broadcast #1 instead.";

/** Opens the page; all that it asks for afterwards. */
async function opened(page: Page, site: string): Promise<string[]> {
  await page.goto(`${site}/demos/trace`);
  await expect(page.getByTestId("drop")).toBeVisible();
  await page.waitForLoadState("networkidle");
  const asked: string[] = [];
  page.on("request", (request) => {
    if (!request.url().startsWith("blob:")) asked.push(request.url());
  });
  return asked;
}

test("files that are chosen are told and drawn, and nothing is sent", async ({ page, site }) => {
  const errors: Error[] = [];
  page.on("pageerror", (error) => errors.push(error));
  const asked = await opened(page, site);
  await page.locator("input[type=file]").setInputFiles(files(DUMPS));
  await expect(page.getByTestId("report")).toContainText(FOUND);
  await expect(page.getByTestId("report")).toContainText("train.py:41 in step");
  const titles = page.getByTestId("timeline").evaluate((element) => {
    const drawing = element as HTMLObjectElement;
    const count = () => drawing.contentDocument?.querySelectorAll("g > title").length ?? 0;
    if (count() > 0) return count();
    return new Promise<number>((resolve) => {
      drawing.addEventListener("load", () => resolve(count()));
    });
  });
  expect(await titles).toBe(6);
  const download = page.waitForEvent("download");
  await page.getByText("trace.json").click();
  const path = await (await download).path();
  const { traceEvents } = JSON.parse(await readFile(path, "utf8"));
  expect(traceEvents.filter((event: { ph: string }) => event.ph === "X")).toHaveLength(6);
  expect(asked).toEqual([]);
  expect(errors).toEqual([]);
});

test("files can be dropped", async ({ page, site }) => {
  await opened(page, site);
  const transfer = await page.evaluateHandle((texts) => {
    const transfer = new DataTransfer();
    texts.forEach((text, rank) => transfer.items.add(new File([text], `rank_${rank}.json`)));
    return transfer;
  }, DUMPS.slice(0, 2));
  await page.getByTestId("drop").dispatchEvent("drop", { dataTransfer: transfer });
  await expect(page.getByTestId("report")).toContainText("files of 2, none of rank 2");
});

test("what cannot be read is said, and the next file is read", async ({ page, site }) => {
  await opened(page, site);
  const input = page.locator("input[type=file]");
  await input.setInputFiles(files([(DUMPS[0] ?? "").slice(0, 100)]));
  await expect(page.getByRole("alert")).toContainText("rank_0.json is not a whole JSON file");
  await input.setInputFiles(files([JSON.stringify({ ...dump(0), rank: -1 })]));
  await expect(page.getByRole("alert")).toContainText("rank: expected a number from 0, not -1");
  await input.setInputFiles(files(DUMPS));
  await expect(page.getByTestId("report")).toContainText(FOUND);
  await expect(page.getByRole("alert")).toHaveCount(0);
});
