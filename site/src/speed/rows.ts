// The files that the `--json` of `polyrank bench store` and `polyrank bench start` write, and what
// the page shows of them. Pure.

/** The program that measured; files of older ones do not say. */
export interface Build {
  version: string;
  /** None where the build did not know it. */
  commit: string | null;
}

/** What all files have in common. */
interface Run {
  made_by: string;
  format: number;
  build?: Build;
  date: string;
  machine: { cpu: string; cores: number; system: string };
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
const FORMAT = 1;

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

/** `polyrank 0.1.0, commit 0123456789ab`. */
export function formatBuild({ version, commit }: Build): string {
  const dirty = commit?.endsWith("-dirty") ? ", with changes" : "";
  return `polyrank ${version}${commit ? `, commit ${commit.slice(0, 12)}${dirty}` : ""}`;
}
