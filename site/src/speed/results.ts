// The files that `polyrank bench --json` writes, and what the page shows of them. Pure.

import { formatBuild, type Build, type Machine } from "./rows";

/** The two measures, in the order in which they are shown. */
export const INPUTS = ["rewritten", "untouched"] as const;

/** What ranks did with their inputs between calls. */
export type Inputs = (typeof INPUTS)[number];

/** One contender's figures for one case; microseconds and 10⁹ bytes a second. */
export interface Measured {
  contender: string;
  time_us: number;
  median_us: number;
  p99_us: number;
  busbw_gbps: number;
  wrong: number | null;
  /** What writing the inputs of a call took, beside its time; null where they are untouched. */
  rewrite_us: number | null;
  /** The reference's time by this one's. */
  ratio: number | null;
}

/** One operation of one size. */
export interface Case {
  operation: string;
  form: "in_place" | "out_of_place";
  inputs: Inputs;
  ranks: number;
  bytes: number;
  dtype: string;
  reduction: string | null;
  results: Measured[];
}

/** One run of the benchmark. */
export interface Report {
  made_by: string;
  format: number;
  /** The program that measured; files of older ones do not say. */
  build?: Build;
  /** Where this was put together of pieces: those of all of them. */
  builds?: Build[];
  title: string;
  date: string;
  machine: Machine;
  load: [number | null, number | null];
  versions: Record<string, Record<string, string>>;
  /** How each contender was started and bound. */
  settings: Record<string, string[]>;
  reference: string;
  /** What could not be measured, and why. */
  missing: Record<string, string>;
  cases: Case[];
}

/** What one table and one chart are about. */
export interface Topic {
  operation: string;
  ranks: number;
  /** Elements, reduction and place of the result. */
  kind: string;
}

/** One comparison, measured on one processor or several. */
export interface Comparison {
  title: string;
  /** One for each processor. */
  reports: Report[];
}

/** The layout of the file that is read here. */
const FORMAT = 2;

/** Whether a file is one of these, and not of stores or of starts. */
export function isReport(file: { made_by: string }): file is Report {
  return file.made_by === "polyrank bench";
}

/**
 * The reports of one title, which may have been measured in pieces, as one; those of another layout
 * are left out. Pieces of different processors, or with other contenders to refer to, stay apart.
 */
export function merged(pieces: readonly Report[]): Report[] {
  const reports = new Map<string, Report>();
  for (const piece of pieces.filter(({ format }) => format === FORMAT)) {
    const key = JSON.stringify([piece.title, piece.machine.processor.name, piece.reference]);
    const known = reports.get(key);
    reports.set(key, known ? joined(known, piece) : piece);
  }
  return [...reports.values()];
}

/** The reports of one title and reference together, whatever their processors. */
export function comparisonsOf(reports: readonly Report[]): Comparison[] {
  const comparisons = new Map<string, Comparison>();
  for (const report of reports) {
    const key = JSON.stringify([report.title, report.reference]);
    const known = comparisons.get(key) ?? { title: report.title, reports: [] };
    comparisons.set(key, { ...known, reports: [...known.reports, report] });
  }
  return [...comparisons.values()];
}

/** The index of the report that says most to a new visitor: of the most other libraries. */
export function openingOf(reports: readonly Report[]): number {
  const libraries = (report: Report) => {
    const names = contendersOf(report.cases);
    return names.filter((name) => !name.startsWith("polyrank") && name !== "memcpy").length;
  };
  // Of two that are alike, the one that has more.
  const weight = (report: Report) => libraries(report) * 1e6 + report.cases.length;
  const most = Math.max(...reports.map(weight));
  return Math.max(0, reports.findIndex((report) => weight(report) === most));
}

/** Two pieces: the first day counts, and the highest load. */
function joined(one: Report, other: Report): Report {
  const load = (index: 0 | 1) => {
    const known = [one.load[index], other.load[index]].filter((load) => load !== null);
    return known.length > 0 ? Math.max(...known) : null;
  };
  return {
    ...one,
    builds: [...ofPieces(one), ...ofPieces(other)],
    date: one.date < other.date ? one.date : other.date,
    load: [load(0), load(1)],
    versions: { ...one.versions, ...other.versions },
    settings: joinedSettings(one.settings, other.settings),
    missing: { ...one.missing, ...other.missing },
    cases: [...one.cases, ...other.cases],
  };
}

function joinedSettings(one: Report["settings"], other: Report["settings"]): Report["settings"] {
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  const both = (name: string) => [...new Set([...(one[name] ?? []), ...(other[name] ?? [])])];
  return Object.fromEntries(names.map((name) => [name, both(name)]));
}

function ofPieces({ builds, build }: Report): Build[] {
  return builds ?? (build ? [build] : []);
}

/** The programs that measured the pieces of a report, in words; none if no piece says. */
export function buildsOf(report: Report): string[] {
  return [...new Set(ofPieces(report).map(formatBuild))];
}

/** `f32, sum, in place`. */
function kindOf({ dtype, reduction, form }: Case): string {
  const parts = [dtype, reduction, form === "in_place" ? "in place" : "out of place"];
  return parts.filter((part) => part !== null).join(", ");
}

/** The operations and numbers of ranks of a report, in its order. */
export function topics(report: Report): Topic[] {
  const found: Topic[] = [];
  for (const one of report.cases) {
    const topic = { operation: one.operation, ranks: one.ranks, kind: kindOf(one) };
    if (!found.some((known) => isSame(known, topic))) {
      found.push(topic);
    }
  }
  return found;
}

/** The cases of a topic by one of the measures, by size. */
export function casesOf(report: Report, topic: Topic, inputs: Inputs): Case[] {
  const chosen = report.cases.filter(
    (one) => one.inputs === inputs && isSame({ ...one, kind: kindOf(one) }, topic),
  );
  return chosen.sort((a, b) => a.bytes - b.bytes);
}

/** The measures that there are of a topic. */
export function inputsOf(report: Report, topic: Topic): Inputs[] {
  return INPUTS.filter((inputs) => casesOf(report, topic, inputs).length > 0);
}

function isSame(one: Topic, other: Topic): boolean {
  return (
    one.operation === other.operation && one.ranks === other.ranks && one.kind === other.kind
  );
}

/** Those that some case has figures of, in the order of the first case. */
export function contendersOf(cases: readonly Case[]): string[] {
  return [...new Set(cases.flatMap(({ results }) => results.map((one) => one.contender)))];
}

/** The figures of a contender in a case. */
export function resultOf(one: Case, contender: string): Measured | undefined {
  return one.results.find((result) => result.contender === contender);
}

/** `polyrank 0.1.0, python 3.11.2`. */
export function versionsOf(report: Report, contender: string): string {
  const versions = Object.entries(report.versions[contender] ?? {});
  return versions.map(([name, version]) => (version ? `${name} ${version}` : name)).join(", ");
}

/** Cases whose results were wrong, or not looked at, of those that are shown. */
export function doubts(cases: readonly Case[]): { wrong: number; unchecked: number } {
  const all = cases.flatMap(({ results }) => results);
  return {
    wrong: all.filter(({ wrong }) => wrong !== null && wrong > 0).length,
    unchecked: all.filter(({ wrong }) => wrong === null).length,
  };
}

/** A ratio in words: how often one goes into the other. */
export function inWords(ratio: number): string {
  const times = ratio < 1 ? 1 / ratio : ratio;
  const shown = times >= 10 ? times.toFixed(0) : times.toFixed(times >= 2 ? 1 : 2);
  return ratio < 1 ? `${shown}× faster` : `${shown}× slower`;
}
