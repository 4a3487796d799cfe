// What the page *Speed* makes of files that `polyrank bench --json` wrote.

import { expect, test } from "@playwright/test";
import {
  buildsOf,
  casesOf,
  comparisonsOf,
  contendersOf,
  doubts,
  inputsOf,
  inWords,
  isReport,
  merged,
  openingOf,
  topics,
  versionsOf,
  type Case,
  type Inputs,
  type Report,
} from "../../src/speed/results";
import {
  formatBuild,
  formatProcessor,
  formatRate,
  loadsOf,
  rowOf,
  serversOf,
  startRatio,
  startReports,
  storeReports,
  type Processor,
  type StartRow,
  type StoreRow,
} from "../../src/speed/rows";

const measured = (contender: string, time_us: number, ratio: number | null) => ({
  contender,
  time_us,
  median_us: time_us,
  p99_us: time_us,
  busbw_gbps: 1,
  wrong: 0,
  rewrite_us: null,
  ratio,
});

const one = (operation: string, ranks: number, bytes: number, dtype = "f32"): Case => ({
  operation,
  form: "in_place",
  inputs: "rewritten",
  ranks,
  bytes,
  dtype,
  reduction: operation === "allreduce" ? "sum" : null,
  results: [measured("polyrank", 2, null), measured("gloo", 8, 0.25)],
});

const unknown: Processor = {
  name: "a-cpu-2-cores",
  vendor: null,
  family: null,
  model: null,
  stepping: null,
  l1_bytes: null,
  l2_bytes: null,
  l3_bytes: null,
};

const report = (title: string, date: string, cases: Case[]): Report => ({
  made_by: "polyrank bench",
  format: 2,
  title,
  date,
  machine: { cpu: "A CPU", processor: unknown, cores: 2, system: "Linux" },
  load: [0.5, null],
  versions: { polyrank: { polyrank: "0.1.0", python: "3.11.2" } },
  settings: {},
  reference: "polyrank",
  missing: {},
  cases,
});

test("pieces of one title are one comparison", () => {
  const pieces = [
    report("Peers", "2026-11-22T10:00:00Z", [one("allreduce", 2, 1024)]),
    { ...report("Peers", "2026-11-21T10:00:00Z", [one("allreduce", 4, 4)]), load: [3, 1] as const },
    report("Languages", "2026-11-22T10:00:00Z", [one("barrier", 2, 0)]),
    { ...report("Peers", "2026-11-22T10:00:00Z", []), format: 1 },
  ];
  const [peers, languages, ...others] = merged(pieces as Report[]);
  expect(others).toEqual([]);
  expect(languages?.title).toBe("Languages");
  expect(peers?.date).toBe("2026-11-21T10:00:00Z");
  expect(peers?.load).toEqual([3, 1]);
  expect(peers?.cases.map(({ ranks }) => ranks)).toEqual([2, 4]);
});

test("pieces of different processors stay apart, in one comparison", () => {
  const here = report("Peers", "2026-11-22", [one("allreduce", 2, 4)]);
  const processor = { ...unknown, name: "another-cpu-2-cores" };
  const there = { ...here, machine: { ...here.machine, processor } };
  const languages = report("Languages", "2026-11-22", [one("allreduce", 2, 4)]);
  const reports = merged([here, languages, there]);
  expect(reports).toHaveLength(3);
  const [peers, ...others] = comparisonsOf(reports);
  expect(peers?.reports.map(({ machine }) => machine.processor.name)).toEqual([
    "a-cpu-2-cores",
    "another-cpu-2-cores",
  ]);
  expect(others.map(({ title }) => title)).toEqual(["Languages"]);
});

test("a processor is told by what its file knows of it", () => {
  const machine = report("", "", []).machine;
  expect(formatProcessor(machine)).toBe("A CPU (its numbers were not noted), 2 cores");
  const processor = {
    ...unknown,
    family: "25",
    model: "17",
    stepping: "1",
    l2_bytes: 1 << 20,
    l3_bytes: 32 << 20,
  };
  expect(formatProcessor({ ...machine, processor })).toBe(
    "A CPU (family 25, model 17, stepping 1, L2 1 MiB, L3 32 MiB), 2 cores",
  );
});

test("the measures of a topic are told apart, rewritten inputs first", () => {
  const untouched = { ...one("allreduce", 2, 4), inputs: "untouched" as Inputs };
  const all = report("Peers", "2026", [untouched, one("allreduce", 2, 4), one("barrier", 2, 0)]);
  const [allreduce, barrier, ...others] = topics(all);
  expect(others).toEqual([]);
  expect(inputsOf(all, allreduce!)).toEqual(["rewritten", "untouched"]);
  expect(inputsOf(all, barrier!)).toEqual(["rewritten"]);
  expect(casesOf(all, allreduce!, "untouched")).toEqual([untouched]);
});

test("how contenders were started is put together of all pieces", () => {
  const piece = (settings: Record<string, string[]>) => ({
    ...report("Peers", "2026", [one("allreduce", 2, 4)]),
    settings,
  });
  const [all] = merged([piece({ mpich: ["-n 2"] }), piece({ mpich: ["-n 2", "-n 4"], gloo: [] })]);
  expect(all?.settings).toEqual({ mpich: ["-n 2", "-n 4"], gloo: [] });
});

test("the page opens with the comparison that has the most other libraries", () => {
  const beside = (...names: string[]) => ({
    ...one("allreduce", 2, 4),
    results: ["polyrank", "memcpy", ...names].map((name) => measured(name, 1, null)),
  });
  const languages = report("Languages", "2026", [beside("polyrank rust", "polyrank node")]);
  const peers = report("Peers", "2026", [beside("gloo", "openmpi", "mpich")]);
  const more = report("More", "2026", [...peers.cases, beside("gloo", "openmpi", "mpich")]);
  const gloo = report("Gloo", "2026", [beside("gloo")]);
  expect(openingOf([languages, gloo, peers, gloo])).toBe(2);
  expect(openingOf([peers, languages, more])).toBe(2);
  expect(openingOf([])).toBe(0);
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
  const cases = casesOf(all, found[0]!, "rewritten");
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

test("the builds of all pieces are named, each once", () => {
  const here = report("Peers", "2026-11-22", [one("allreduce", 2, 4)]);
  expect(buildsOf(here)).toEqual([]);
  const build = { version: "0.1.0", commit: "0123456789abcdef" };
  const pieces = [here, { ...here, build }, { ...here, build }, { ...here, build: { ...build } }];
  const [all] = merged(pieces);
  expect(buildsOf(all!)).toEqual(["polyrank 0.1.0, commit 0123456789ab"]);
  expect(formatBuild({ version: "1", commit: null })).toBe("polyrank 1");
  expect(formatBuild({ version: "1", commit: "0123456789abc-dirty" })).toBe(
    "polyrank 1, commit 0123456789ab, with changes",
  );
});

const run = (made_by: string, rows: unknown[]) => ({
  ...report("", "2026-11-22", []),
  made_by,
  rows,
});

test("stores are told from the rest, by the number of clients", () => {
  const row = (clients: number, operation: string, server: string): StoreRow => ({
    clients,
    operation,
    server,
    per_second: 64_321,
    median_us: 20,
    p99_us: 30,
  });
  const files = [
    run("polyrank bench store", [row(16, "get", "polyrank")]),
    run("polyrank bench start", [{}]),
    run("polyrank bench", []),
    run("polyrank bench store", []),
    run("polyrank bench store", [row(1, "set", "polyrank"), row(1, "set", "torch")]),
  ];
  expect(files.filter(isReport)).toHaveLength(1);
  const [first, second, ...others] = storeReports(files);
  expect(others).toEqual([]);
  expect(serversOf(first!)).toEqual(["polyrank", "torch"]);
  expect(loadsOf(first!)).toEqual([{ clients: 1, operation: "set" }]);
  expect(rowOf(second!, { clients: 16, operation: "get" }, "torch")).toBeUndefined();
  expect(rowOf(second!, { clients: 16, operation: "get" }, "polyrank")?.median_us).toBe(20);
  expect([64_321, 1_888_000, 850].map(formatRate)).toEqual(["64.3 k", "1.89 M", "850"]);
});

test("starts are compared with the first from the same beginning", () => {
  const row = (before: StartRow["before"], contender: string, reduced_ms: number): StartRow => ({
    ranks: 32,
    before,
    contender,
    versions: {},
    settings: [],
    member_ms: 1,
    reduced_ms,
    turns_ms: [reduced_ms],
    memory_bytes: null,
  });
  const rows = [
    row("store_up", "polyrank python", 50),
    row("store_up", "gloo", 100),
    row("at_once", "polyrank python", 200),
    row("at_once", "gloo", 800),
  ];
  const [starts] = startReports([run("polyrank bench start", rows)]);
  expect(rows.map((one) => startRatio(starts!, one))).toEqual([null, 0.5, null, 0.25]);
});
