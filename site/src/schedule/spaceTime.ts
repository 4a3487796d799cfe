// Paints a schedule in space and time: a row for each rank, a line for each message. Knows the
// playback, and nothing of how its time passes.

import { formatSeconds } from "../format";
import { rankColour, type Palette } from "../palette";
import { beginOf, duration, endOf } from "./playback";
import type { Clock, Playback } from "./playback";

const LEFT_PX = 30;
const RIGHT_PX = 12;
const BOTTOM_PX = 22;

/** The height for a number of ranks. */
export function spaceTimeHeight(ranks: number): number {
  return BOTTOM_PX + 8 + ranks * (ranks > 8 ? 16 : 24);
}

/** The time at a fraction of the width. */
export function timeAt(fraction: number, width: number, total: number): number {
  const inside = (fraction * width - LEFT_PX) / (width - LEFT_PX - RIGHT_PX);
  return Math.max(0, Math.min(1, inside)) * total;
}

/** Paints all messages, and where the time is now. */
export function paintSpaceTime(
  brush: CanvasRenderingContext2D,
  width: number,
  height: number,
  palette: Palette,
  playback: Playback,
  clock: Clock,
  time: number,
): void {
  const total = duration(playback, clock) || 1;
  const x = (at: number) => LEFT_PX + ((width - LEFT_PX - RIGHT_PX) * at) / total;
  const row = (height - BOTTOM_PX - 8) / playback.ranks;
  const y = (rank: number) => 4 + row * (rank + 0.5);
  brush.font = `11px ${palette.font}`;
  brush.textBaseline = "middle";
  for (let rank = 0; rank < playback.ranks; rank += 1) {
    brush.strokeStyle = palette.line;
    brush.lineWidth = 1;
    line(brush, x(0), y(rank), x(total), y(rank));
    brush.fillStyle = rankColour(rank, playback.ranks);
    brush.textAlign = "right";
    brush.fillText(String(rank), LEFT_PX - 10, y(rank));
  }
  for (const message of playback.messages) {
    const [begin, end] = [beginOf(message, clock), endOf(message, clock)];
    const isPast = end <= time;
    const isNow = begin <= time && !isPast;
    const alpha = isNow ? 1 : isPast ? 0.6 : 0.22;
    brush.strokeStyle = rankColour(message.sender, playback.ranks, alpha);
    brush.fillStyle = brush.strokeStyle;
    brush.lineWidth = isNow ? 2.5 : 1.5;
    line(brush, x(begin), y(message.sender), x(end), y(message.receiver));
    brush.beginPath();
    brush.arc(x(end), y(message.receiver), 2.5, 0, 2 * Math.PI);
    brush.fill();
  }
  paintAxis(brush, height, palette, x, total, clock);
  brush.strokeStyle = palette.accent;
  brush.lineWidth = 2;
  line(brush, x(time), 2, x(time), height - BOTTOM_PX + 2);
}

function paintAxis(
  brush: CanvasRenderingContext2D,
  height: number,
  palette: Palette,
  x: (at: number) => number,
  total: number,
  clock: Clock,
): void {
  brush.fillStyle = palette.faint;
  const marks = clock === "rounds" ? roundMarks(total) : [0, total / 2, total];
  marks.forEach((mark, index) => {
    brush.textAlign = index === 0 ? "left" : index === marks.length - 1 ? "right" : "center";
    const text = clock === "rounds" ? `${mark}` : formatSeconds(mark);
    brush.fillText(text, x(mark), height - BOTTOM_PX / 2);
  });
}

function roundMarks(rounds: number): number[] {
  const step = Math.max(1, Math.ceil(rounds / 10));
  const marks = Array.from({ length: Math.floor(rounds / step) + 1 }, (_, index) => index * step);
  return marks.at(-1) === rounds ? marks : [...marks.slice(0, -1), rounds];
}

function line(
  brush: CanvasRenderingContext2D,
  x0: number,
  y0: number,
  x1: number,
  y1: number,
): void {
  brush.beginPath();
  brush.moveTo(x0, y0);
  brush.lineTo(x1, y1);
  brush.stroke();
}
