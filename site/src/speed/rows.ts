// The files that the `--json` of `polyrank bench store` and `polyrank bench start` write, and what
// the page shows of them. Pure.

import { formatBytes } from "../format";

/** The program that measured; files of older ones do not say. */
export interface Build {
  version: string;
  /** None where the build did not know it. */
  commit: string | null;
}

/** The kind of a processor; null where the file does not say. */
export interface Processor {
  /** Of all of the following and of the number of cores: the folder of its files. */
  name: string;
  vendor: string | null;
  family: string | null;
  model: string | null;
  stepping: string | null;
  l1_bytes: number | null;
  l2_bytes: number | null;
  l3_bytes: number | null;
}

/** What ran the benchmark. */
export interface Machine {
  cpu: string;
  processor: Processor;
  cores: number;
  system: string;
}

/** What all files have in common. */
interface Run {
  made_by: string;
  format: number;
  build?: Build;
  date: string;
  machine: Machine;
  load: [number | null, number | null];
}

/** One server under the load of one kind of request. */
export interface StoreRow {
  clients: number;
  operation: string;
  server: string;
  per_second: number;
  median_us: number;
  p99_us: number;
}

/** One run of `polyrank bench store`. */
export interface StoreReport extends Run {
  value_bytes: number;
  /** How other servers are started. */
  settings: Record<string, string[]>;
  /** What could not be measured, and why. */
  missing: string[];
  rows: StoreRow[];
}

/** The starts of one contender from one beginning. */
export interface StartRow {
  ranks: number;
  before: "store_up" | "at_once";
  contender: string;
  versions: Record<string, string>;
  /** How it is started. */
  settings: string[];
  member_ms: number;
  reduced_ms: number;
  turns_ms: number[];
  memory_bytes: number | null;
}

/** One run of `polyrank bench start`. */
export interface StartReport extends Run {
  rows: StartRow[];
}

/** The layout of the files that is read here. */
const FORMAT = 2;

/** The runs of the benchmark of stores among all files, by the number of clients. */
export function storeReports(files: readonly { made_by: string }[]): StoreReport[] {
  const clients = ({ rows }: StoreReport) => rows[0]?.clients ?? 0;
  return runs<StoreReport>(files, "polyrank bench store").sort((a, b) => clients(a) - clients(b));
}

/** The runs of the benchmark of starts among all files. */
export function startReports(files: readonly { made_by: string }[]): StartReport[] {
  return runs<StartReport>(files, "polyrank bench start");
}

function runs<Report extends Run>(files: readonly { made_by: string }[], maker: string) {
  const ours = files.filter(({ made_by }) => made_by === maker) as Report[];
  return ours.filter(({ format, rows }: Report & { rows?: unknown[] }) => {
    return format === FORMAT && (rows?.length ?? 0) > 0;
  });
}

/** The servers of a run, in its order. */
export function serversOf({ rows }: StoreReport): string[] {
  return [...new Set(rows.map(({ server }) => server))];
}

/** The numbers of clients of a run, with the requests of each. */
export function loadsOf({ rows }: StoreReport): { clients: number; operation: string }[] {
  const first = ({ clients, operation }: StoreRow, index: number) =>
    rows.findIndex((row) => row.clients === clients && row.operation === operation) === index;
  return rows.filter(first).map(({ clients, operation }) => ({ clients, operation }));
}

/** A server's figures under a load. */
export function rowOf(
  { rows }: StoreReport,
  load: { clients: number; operation: string },
  server: string,
): StoreRow | undefined {
  return rows.find(
    (row) =>
      row.server === server && row.clients === load.clients && row.operation === load.operation,
  );
}

/** Every server's figures under a load, in the order of `serversOf`. */
export function figuresOf(
  report: StoreReport,
  load: { clients: number; operation: string },
): (StoreRow | undefined)[] {
  return serversOf(report).map((server) => rowOf(report, load, server));
}

/** `1.9 M`, `64 k`, `850`: so many a second. */
export function formatRate(perSecond: number): string {
  const [scale, unit] = perSecond >= 1e6 ? [1e6, " M"] : perSecond >= 1e3 ? [1e3, " k"] : [1, ""];
  return `${Number((perSecond / scale).toPrecision(3))}${unit}`;
}

/** The first contender's time by this one's, from the same beginning; none for the first itself. */
export function startRatio({ rows }: StartReport, row: StartRow): number | null {
  const first = rows.find(({ ranks, before }) => ranks === row.ranks && before === row.before);
  return first && first.contender !== row.contender ? first.reduced_ms / row.reduced_ms : null;
}

/** The program that measured a run, in words; none if its file does not say. */
export function buildOf({ build }: Run): string[] {
  return build ? [formatBuild(build)] : [];
}

/** `AMD EPYC (family 25, model 17, stepping 1, L2 1 MiB, L3 32 MiB), 2 cores`: what is known. */
export function formatProcessor({ cpu, processor, cores }: Machine): string {
  const numbers = (["family", "model", "stepping"] as const).flatMap((name) =>
    processor[name] === null ? [] : [`${name} ${processor[name]}`],
  );
  const caches = (["l2", "l3"] as const).flatMap((level) => {
    const bytes = processor[`${level}_bytes`];
    return bytes === null ? [] : [`${level.toUpperCase()} ${formatBytes(bytes)}`];
  });
  const known = [...numbers, ...caches];
  const kind = known.length > 0 ? known.join(", ") : "its numbers were not noted";
  return `${cpu || (processor.vendor ?? "a processor")} (${kind}), ${cores} cores`;
}

/** `polyrank 0.1.0, commit 0123456789ab`. */
export function formatBuild({ version, commit }: Build): string {
  const dirty = commit?.endsWith("-dirty") ? ", with changes" : "";
  return `polyrank ${version}${commit ? `, commit ${commit.slice(0, 12)}${dirty}` : ""}`;
}
