// "Kill a rank" in a browser: tabs, workers and a rank in Python go, and the others go on.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Page } from "@playwright/test";
import { newRoomName } from "../../src/rooms/room";
import { expect, test } from "../servers";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const PYTHON = process.env["POLYRANK_PYTHON"] ?? `${ROOT}.venv/bin/python`;

const loss = async (page: Page) => Number(await page.getByTestId("loss").innerText());
const trainsWith = (page: Page, count: number) =>
  expect(page.getByTestId("status")).toHaveText(
    new RegExp(`^Quorum \\d+: ${count} rank${count === 1 ? "" : "s"}\\.$`),
  );
const areSame = (page: Page, count: number) =>
  expect(page.getByTestId("verdict")).toHaveText(`✓ the same bits on all ${count} ranks`);

test("a tab that is closed and a worker that is killed are not missed", async ({
  context,
  site,
  store,
}) => {
  const address = `${site}/demos/survive?room=${newRoomName()}&store=${store}`;
  const [first, second] = [await context.newPage(), await context.newPage()];
  await first.goto(address);
  await trainsWith(first, 1);
  await first.getByTestId("add-worker").click();
  await trainsWith(first, 2);
  await second.goto(address);
  await trainsWith(second, 3);
  await areSame(first, 3);
  const before = await loss(first);
  await second.close();
  await trainsWith(first, 2);
  const events = first.getByTestId("events").getByRole("listitem");
  await expect(events.first()).toContainText("gone: tab");
  const worker = first.getByTestId("members").getByRole("listitem").filter({ hasText: "worker" });
  await worker.getByTestId("kill").click();
  await trainsWith(first, 1);
  await expect(events.first()).toContainText("gone: worker");
  await first.getByTestId("add-worker").click();
  await trainsWith(first, 2);
  await expect(events.first()).toContainText("takes the state of rank");
  await areSame(first, 2);
  expect(await loss(first)).toBeLessThan(before);
});

test("a rank in Python that is killed is not missed, and another takes its place", async ({
  page,
  site,
  store,
}) => {
  const room = newRoomName();
  await page.goto(`${site}/demos/survive?room=${room}&store=${store}`);
  await trainsWith(page, 1);
  const start = () => {
    const words = ["tests/demo/survivor.py", store, room];
    return spawn(PYTHON, words, { cwd: ROOT, stdio: ["ignore", "ignore", "inherit"] });
  };
  const killed = start();
  await trainsWith(page, 2);
  await areSame(page, 2);
  killed.kill("SIGKILL");
  await trainsWith(page, 1);
  const other = start();
  await trainsWith(page, 2);
  await areSame(page, 2);
  const events = page.getByTestId("events").getByRole("listitem");
  await expect(events.first()).toContainText(/new: Python/);
  // Whoever is left goes on, though the first of all is gone.
  await page.getByTestId("add-worker").click();
  await trainsWith(page, 3);
  await page.getByTestId("members").getByTestId("kill").first().click();
  await trainsWith(page, 2);
  await areSame(page, 2);
  other.kill("SIGKILL");
});
