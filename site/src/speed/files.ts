// The committed results of all benchmarks, in the order of their names: a folder for each
// processor, a file for each piece. Knows nothing of their content.

const files = import.meta.glob<{ made_by: string }>("../../../tests/bench/results/*/*.json", {
  eager: true,
  import: "default",
});

/** What `polyrank bench` wrote, one a file. */
export const results = Object.entries(files)
  .sort(([a], [b]) => a.localeCompare(b))
  .map(([, report]) => report);
