// Numbers to places on an axis and back. Pure.

/** An axis from `low` to `high`, laid onto `from` to `to` pixels. */
export interface Scale {
  at(value: number): number;
  value(pixel: number): number;
  marks(count: number): number[];
}

/** Equal distances for equal differences. */
export function linear(low: number, high: number, from: number, to: number): Scale {
  const span = high - low || 1;
  return {
    at: (value) => from + ((value - low) / span) * (to - from),
    value: (pixel) => low + ((pixel - from) / (to - from)) * span,
    marks: (count) => {
      const step = niceStep(span / Math.max(1, count));
      const first = Math.ceil(low / step - 1e-9);
      const last = Math.floor(high / step + 1e-9);
      return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
    },
  };
}

/** Equal distances for equal quotients; marks are powers of `base`. */
export function logarithmic(
  low: number,
  high: number,
  from: number,
  to: number,
  base: number,
): Scale {
  const inner = linear(Math.log(low), Math.log(high), from, to);
  return {
    at: (value) => inner.at(Math.log(Math.max(low / 1e3, value))),
    value: (pixel) => Math.exp(inner.value(pixel)),
    marks: (count) => {
      const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
      const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
      const step = Math.max(1, Math.ceil((last - first) / Math.max(1, count)));
      const length = Math.floor((last - first) / step) + 1;
      return Array.from({ length }, (_, index) => base ** (first + index * step));
    },
  };
}

/** 1, 2 or 5 times a power of ten, not smaller than `least`. */
function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least * 0.999)!;
}
