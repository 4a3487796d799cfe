// Numbers as people read them. Pure.

/** `512 B`, `64 KiB`, `1.5 MiB`. */
export function formatBytes(bytes: number): string {
  return scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

/** `850 ns`, `12 µs`, `3.4 ms`, `2 s`. */
export function formatSeconds(seconds: number): string {
  return seconds === 0 ? "0 s" : scaled(seconds * 1e9, 1000, ["ns", "µs", "ms", "s"]);
}

/** `12 MB/s`, `1.2 GB/s`. */
export function formatBandwidth(bytesPerSecond: number): string {
  return scaled(bytesPerSecond, 1000, ["B/s", "kB/s", "MB/s", "GB/s"]);
}

/** With at most three digits, and as few as say the same. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) {
    return String(value);
  }
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) {
    return value.toExponential(1);
  }
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
}

function scaled(value: number, step: number, units: readonly string[]): string {
  let [rest, unit] = [value, 0];
  while (rest >= step * 0.9995 && unit < units.length - 1) {
    rest /= step;
    unit += 1;
  }
  const digits = rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
  return `${Number(rest.toFixed(digits))} ${units[unit]}`;
}
