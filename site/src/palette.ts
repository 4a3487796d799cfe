// Colours: one for each rank, and those of the theme that a canvas cannot take from CSS by itself.

/** What a canvas paints with. */
export interface Palette {
  text: string;
  faint: string;
  line: string;
  background: string;
  surface: string;
  accent: string;
  font: string;
}

/** A rank's colour; well apart from its neighbours', readable on light and dark. */
export function rankColour(rank: number, ranks: number, alpha = 1): string {
  const few = [255, 55, 155, 330, 200, 95, 295, 25];
  const hue = ranks <= few.length ? few[rank % few.length]! : (255 + (360 * rank) / ranks) % 360;
  // Neighbours on a full circle differ in lightness too.
  const lightness = ranks > few.length && rank % 2 === 1 ? 0.6 : 0.71;
  return `oklch(${lightness} 0.15 ${hue} / ${alpha})`;
}

/** The theme's colours as they are now at an element. */
export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: colour("--vp-c-text-1"),
    faint: colour("--vp-c-text-2"),
    line: colour("--vp-c-divider"),
    background: colour("--vp-c-bg"),
    surface: colour("--vp-c-bg-soft"),
    accent: colour("--vp-c-brand-1"),
    font: colour("--vp-font-family-base") || "sans-serif",
  };
}
