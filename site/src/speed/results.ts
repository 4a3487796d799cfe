// The files that `polyrank bench --json` writes, and what the page shows of them. Pure.

/** One contender's figures for one case; microseconds and 10⁹ bytes a second. */
export interface Measured {
  contender: string;
  time_us: number;
  median_us: number;
  p99_us: number;
  busbw_gbps: number;
  wrong: number | null;
  /** The reference's time by this one's. */
  ratio: number | null;
}

/** One operation of one size. */
export interface Case {
  operation: string;
  form: "in_place" | "out_of_place";
  ranks: number;
  bytes: number;
  dtype: string;
  results: Measured[];
}

/** One run of the benchmark. */
export interface Report {
  format: number;
  title: string;
  date: string;
  machine: { cpu: string; cores: number; memory_bytes: number; system: string };
  load: [number | null, number | null];
  versions: Record<string, Record<string, string>>;
  reference: string;
  cases: Case[];
}

/** What one table and one chart are about. */
export interface Topic {
  operation: string;
  ranks: number;
}

/** The operations and numbers of ranks of a report, in its order. */
export function topics(report: Report): Topic[] {
  const found: Topic[] = [];
  for (const { operation, ranks } of report.cases) {
    if (!found.some((topic) => topic.operation === operation && topic.ranks === ranks)) {
      found.push({ operation, ranks });
    }
  }
  return found;
}

/** The cases of a topic, by size. */
export function casesOf(report: Report, { operation, ranks }: Topic): Case[] {
  const chosen = report.cases.filter(
    (one) => one.operation === operation && one.ranks === ranks,
  );
  return chosen.sort((a, b) => a.bytes - b.bytes);
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

/** A ratio in words: how often one goes into the other. */
export function inWords(ratio: number): string {
  const times = ratio < 1 ? 1 / ratio : ratio;
  const shown = times >= 10 ? times.toFixed(0) : times.toFixed(times >= 2 ? 1 : 2);
  return ratio < 1 ? `${shown}× faster` : `${shown}× slower`;
}
