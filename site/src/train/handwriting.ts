// Turns strokes into the 8 by 8 pixels that the model was trained on. Pure.
//
// The data set was made so: each digit was scaled to a box of 32 by 32 dots, and each pixel counts
// the dark dots of a 4 by 4 square. E. Alpaydin and C. Kaynak: Cascading classifiers (1998).

/** A place on the sheet, from 0 to 1 in both directions. */
export interface Point {
  x: number;
  y: number;
}

const DOTS = 32;
const CELL = 4;
/** Half the width of a pen, in dots. */
const PEN = 1.9;

/** 64 pixels from 0 to 16; null if nothing was drawn. */
export function pixelsOf(strokes: readonly (readonly Point[])[]): number[] | null {
  const points = strokes.flat();
  if (points.length === 0) {
    return null;
  }
  const left = Math.min(...points.map(({ x }) => x));
  const right = Math.max(...points.map(({ x }) => x));
  const top = Math.min(...points.map(({ y }) => y));
  const bottom = Math.max(...points.map(({ y }) => y));
  // As high as the box, and as wide as that makes it; a dot stays a dot.
  const room = DOTS - 2 * PEN;
  const scale = room / Math.max(bottom - top, right - left, 0.08);
  const toDots = ({ x, y }: Point): Point => ({
    x: DOTS / 2 + (x - (left + right) / 2) * scale,
    y: DOTS / 2 + (y - (top + bottom) / 2) * scale,
  });
  const lines = strokes.map((stroke) => stroke.map(toDots));
  const pixels = new Array<number>((DOTS / CELL) ** 2).fill(0);
  for (let y = 0; y < DOTS; y += 1) {
    for (let x = 0; x < DOTS; x += 1) {
      const dot = { x: x + 0.5, y: y + 0.5 };
      if (lines.some((line) => distance(dot, line) <= PEN)) {
        pixels[Math.floor(y / CELL) * (DOTS / CELL) + Math.floor(x / CELL)]! += 1;
      }
    }
  }
  return pixels;
}

/** The distance of a point to a line of several parts. */
function distance(point: Point, line: readonly Point[]): number {
  if (line.length === 1) {
    return Math.hypot(point.x - line[0]!.x, point.y - line[0]!.y);
  }
  const parts = line.slice(1).map((end, index) => distanceToPart(point, line[index]!, end));
  return Math.min(...parts);
}

function distanceToPart(point: Point, begin: Point, end: Point): number {
  const [dx, dy] = [end.x - begin.x, end.y - begin.y];
  const length2 = dx * dx + dy * dy || 1;
  const along = ((point.x - begin.x) * dx + (point.y - begin.y) * dy) / length2;
  const at = Math.max(0, Math.min(1, along));
  return Math.hypot(point.x - begin.x - at * dx, point.y - begin.y - at * dy);
}
