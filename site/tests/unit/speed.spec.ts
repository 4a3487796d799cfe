// What the page *Speed* makes of files that `polyrank bench --json` wrote.

import { expect, test } from "@playwright/test";
import {
  casesOf,
  contendersOf,
  doubts,
  inWords,
  merged,
  topics,
  versionsOf,
  type Case,
  type Report,
} from "../../src/speed/results";

const measured = (contender: string, time_us: number, ratio: number | null) => ({
  contender,
  time_us,
  median_us: time_us,
  p99_us: time_us,
  busbw_gbps: 1,
  wrong: 0,
  ratio,
});

const one = (operation: string, ranks: number, bytes: number, dtype = "f32"): Case => ({
  operation,
  form: "in_place",
  ranks,
  bytes,
  dtype,
  reduction: operation === "allreduce" ? "sum" : null,
  results: [measured("polyrank", 2, null), measured("gloo", 8, 0.25)],
});

const report = (title: string, date: string, cases: Case[]): Report => ({
  format: 1,
  title,
  date,
  machine: { cpu: "A CPU", cores: 2, memory_bytes: 1, system: "Linux" },
  load: [0.5, null],
  versions: { polyrank: { polyrank: "0.1.0", python: "3.11.2" } },
  reference: "polyrank",
  missing: {},
  cases,
});

test("pieces of one title are one comparison", () => {
  const pieces = [
    report("Peers", "2026-11-22T10:00:00Z", [one("allreduce", 2, 1024)]),
    { ...report("Peers", "2026-11-21T10:00:00Z", [one("allreduce", 4, 4)]), load: [3, 1] as const },
    report("Languages", "2026-11-22T10:00:00Z", [one("barrier", 2, 0)]),
    { ...report("Peers", "2026-11-22T10:00:00Z", []), format: 2 },
  ];
  const [peers, languages, ...others] = merged(pieces as Report[]);
  expect(others).toEqual([]);
  expect(languages?.title).toBe("Languages");
  expect(peers?.date).toBe("2026-11-21T10:00:00Z");
  expect(peers?.load).toEqual([3, 1]);
  expect(peers?.cases.map(({ ranks }) => ranks)).toEqual([2, 4]);
});

test("pieces of different machines stay apart", () => {
  const here = report("Peers", "2026-11-22", [one("allreduce", 2, 4)]);
  const there = { ...here, machine: { ...here.machine, cores: 64 } };
  expect(merged([here, there])).toHaveLength(2);
});

test("a topic has one case for each size, in order", () => {
  const all = report("Peers", "2026-11-22", [
    one("allreduce", 2, 1024),
    one("allreduce", 2, 4),
    one("allreduce", 2, 4, "f16"),
    one("broadcast", 2, 4),
  ]);
  const found = topics(all);
  expect(found.map(({ operation, kind }) => `${operation} of ${kind}`)).toEqual([
    "allreduce of f32, sum, in place",
    "allreduce of f16, sum, in place",
    "broadcast of f32, in place",
  ]);
  const cases = casesOf(all, found[0]!);
  expect(cases.map(({ bytes }) => bytes)).toEqual([4, 1024]);
  expect(contendersOf(cases)).toEqual(["polyrank", "gloo"]);
  expect(doubts(cases)).toEqual({ wrong: 0, unchecked: 0 });
});

test("versions and ratios in words", () => {
  const all = report("Peers", "2026-11-22", []);
  expect(versionsOf(all, "polyrank")).toBe("polyrank 0.1.0, python 3.11.2");
  expect([0.25, 0.9, 1.5, 20].map(inWords)).toEqual([
    "4.0× faster",
    "1.11× faster",
    "1.50× slower",
    "20× slower",
  ]);
});
