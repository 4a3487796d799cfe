// Paints the ranks with their buffers and the messages between them. Knows the playback, and
// nothing of how its time passes.

import { rankColour, type Palette } from "../palette";
import { beginOf, endOf, stateAt } from "./playback";
import type { Cell, Clock, Message, Playback, Strip } from "./playback";

/** How cells are coloured: by who contributed, or by the block that they were. */
export type Colouring = "contributions" | "origin" | "block";

/** What is painted. */
export interface Scene {
  playback: Playback;
  clock: Clock;
  time: number;
  colouring: Colouring;
  root: number | null;
}

interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

const TITLE_PX = 18;
const PADDING_PX = 6;

/** The height that suits a width. */
export function stageHeight(width: number, ranks: number): number {
  const least = ranks > 10 ? 540 : 440;
  return Math.round(Math.max(least, Math.min(500, width * 0.55)));
}

/** Paints a scene. */
export function paintStage(
  brush: CanvasRenderingContext2D,
  width: number,
  height: number,
  palette: Palette,
  scene: Scene,
): void {
  const { playback, clock, time } = scene;
  const places = arrange(playback, width, height);
  const state = stateAt(playback, clock, time);
  const flying = playback.messages.filter(
    (message) => beginOf(message, clock) <= time && time < endOf(message, clock),
  );
  for (const message of flying) {
    paintPath(brush, places, message, playback.ranks);
  }
  places.forEach((place, rank) => paintRank(brush, place, rank, state[rank]!, scene, palette));
  for (const message of flying) {
    paintMessage(brush, places, message, scene, palette);
  }
}

/** The ranks on an ellipse, rank 0 at the top, as large as they can be without touching. */
function arrange(playback: Playback, width: number, height: number): Place[] {
  const { ranks, start } = playback;
  const rows = new Set(start.flatMap((own) => own.map((strip) => strip.buffer))).size;
  const row = Math.max(ranks > 10 ? 17 : ranks > 6 ? 28 : 40, ranks > 10 ? 0 : 7 * ranks);
  const tall = TITLE_PX + 2 * PADDING_PX + Math.max(1, rows) * row;
  const spare = ranks <= 4 ? 0.34 : ranks <= 8 ? 0.23 : ranks <= 12 ? 0.15 : 0.115;
  const wide = Math.max(ranks > 10 ? 44 : 54, Math.min(190, width * spare));
  const card = { width: wide, height: Math.min(tall, height / (ranks > 10 ? 5.5 : 3.6)) };
  if (ranks === 1) {
    return [{ x: (width - wide) / 2, y: (height - card.height) / 2, ...card }];
  }
  return Array.from({ length: ranks }, (_, rank) => {
    const angle = (2 * Math.PI * rank) / ranks - Math.PI / 2;
    const x = width / 2 + (width / 2 - wide / 2 - 2) * Math.cos(angle);
    const y = height / 2 + (height / 2 - card.height / 2 - 2) * Math.sin(angle);
    return { x: x - wide / 2, y: y - card.height / 2, ...card };
  });
}

function paintRank(
  brush: CanvasRenderingContext2D,
  place: Place,
  rank: number,
  strips: readonly Strip[],
  scene: Scene,
  palette: Palette,
): void {
  const { ranks } = scene.playback;
  brush.fillStyle = palette.background;
  brush.strokeStyle = rankColour(rank, ranks);
  brush.lineWidth = 1.5;
  brush.beginPath();
  brush.roundRect(place.x, place.y, place.width, place.height, 8);
  brush.fill();
  brush.stroke();
  brush.fillStyle = palette.text;
  brush.font = `600 ${place.width < 80 ? 11 : 12}px ${palette.font}`;
  brush.textBaseline = "middle";
  brush.textAlign = "left";
  const title = place.width < 70 ? `${rank}` : `rank ${rank}`;
  const note = rank === scene.root ? (place.width < 90 ? " ★" : " ★ root") : "";
  brush.fillText(title + note, place.x + PADDING_PX + 1, place.y + PADDING_PX + TITLE_PX / 2 - 2);
  const buffers = [...new Set(strips.map((strip) => strip.buffer))];
  const room = place.height - TITLE_PX - 2 * PADDING_PX;
  const row = room / Math.max(1, buffers.length);
  buffers.forEach((buffer, index) => {
    const y = place.y + PADDING_PX + TITLE_PX + index * row;
    const box = { x: place.x + PADDING_PX, y, width: place.width - 2 * PADDING_PX, height: row };
    const own = strips.filter((strip) => strip.buffer === buffer);
    paintBuffer(brush, box, buffer, own, buffers.length > 1, scene, palette);
  });
}

function paintBuffer(
  brush: CanvasRenderingContext2D,
  box: Place,
  buffer: Strip["buffer"],
  strips: readonly Strip[],
  isNamed: boolean,
  scene: Scene,
  palette: Palette,
): void {
  let { x, width } = box;
  if (isNamed && box.width > 80) {
    brush.fillStyle = palette.faint;
    brush.font = `10px ${palette.font}`;
    const name = { input: "in", output: "out", scratch: "tmp" }[buffer];
    brush.fillText(name, x + 1, box.y + box.height / 2);
    x += 24;
    width -= 24;
  }
  const gap = strips.length > 10 ? 1 : 2;
  const blocks = strips.reduce((sum, strip) => sum + strip.times, 0);
  const wide = (width - gap * (strips.length - 1)) / blocks;
  let left = x;
  for (const { cells, times } of strips) {
    paintCells(brush, left, box.y + 2, wide * times, box.height - 4, cells, scene, palette);
    left += wide * times + gap;
  }
}

function paintCells(
  brush: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  cells: readonly Cell[],
  scene: Scene,
  palette: Palette,
): void {
  const { ranks } = scene.playback;
  const wide = width / cells.length;
  brush.fillStyle = palette.surface;
  brush.fillRect(x, y, width, height);
  cells.forEach((cell, index) => {
    const left = x + index * wide;
    for (const [rank, block] of cell) {
      if (scene.colouring === "contributions") {
        brush.fillStyle = rankColour(rank, ranks);
        brush.fillRect(left, y + (rank * height) / ranks, wide, height / ranks + 0.25);
      } else {
        brush.fillStyle = rankColour(scene.colouring === "block" ? block : rank, ranks);
        brush.fillRect(left, y, wide, height);
      }
    }
    if (index > 0 && wide > 4) {
      brush.fillStyle = palette.background;
      brush.fillRect(left - 0.5, y, 1, height);
    }
  });
  brush.strokeStyle = palette.line;
  brush.lineWidth = 1;
  brush.strokeRect(x, y, width, height);
}

/** Where a line from the middle of one card to that of another leaves the first. */
function edge(from: Place, to: Place): [number, number] {
  const [x, y] = [from.x + from.width / 2, from.y + from.height / 2];
  const [dx, dy] = [to.x + to.width / 2 - x, to.y + to.height / 2 - y];
  const reach = Math.min(
    (from.width / 2 + 4) / Math.max(1e-6, Math.abs(dx)),
    (from.height / 2 + 4) / Math.max(1e-6, Math.abs(dy)),
  );
  return [x + dx * Math.min(0.5, reach), y + dy * Math.min(0.5, reach)];
}

/** Beginning, bend and end of a message's way; both directions between two ranks are apart. */
function path(places: readonly Place[], { sender, receiver }: Message) {
  const [from, to] = [places[sender]!, places[receiver]!];
  const [x0, y0] = edge(from, to);
  const [x1, y1] = edge(to, from);
  const bend = 0.09;
  const [mx, my] = [(x0 + x1) / 2 - (y1 - y0) * bend, (y0 + y1) / 2 + (x1 - x0) * bend];
  return { x0, y0, mx, my, x1, y1 };
}

function paintPath(
  brush: CanvasRenderingContext2D,
  places: readonly Place[],
  message: Message,
  ranks: number,
): void {
  const { x0, y0, mx, my, x1, y1 } = path(places, message);
  brush.strokeStyle = rankColour(message.sender, ranks, 0.35);
  brush.lineWidth = 1.5;
  brush.beginPath();
  brush.moveTo(x0, y0);
  brush.quadraticCurveTo(mx, my, x1, y1);
  brush.stroke();
}

function paintMessage(
  brush: CanvasRenderingContext2D,
  places: readonly Place[],
  message: Message,
  scene: Scene,
  palette: Palette,
): void {
  const { clock, time, playback } = scene;
  const begin = beginOf(message, clock);
  const passed = (time - begin) / Math.max(1e-12, endOf(message, clock) - begin);
  const at = passed * passed * (3 - 2 * passed);
  const { x0, y0, mx, my, x1, y1 } = path(places, message);
  const along = (a: number, b: number, c: number) =>
    (1 - at) * (1 - at) * a + 2 * at * (1 - at) * b + at * at * c;
  const [x, y] = [along(x0, mx, x1), along(y0, my, y1)];
  if (message.cells.length === 0) {
    brush.fillStyle = rankColour(message.sender, playback.ranks);
    brush.beginPath();
    brush.arc(x, y, 5, 0, 2 * Math.PI);
    brush.fill();
    return;
  }
  const width = Math.max(16, Math.min(44, 9 * message.cells.length));
  const height = playback.ranks > 10 ? 18 : 30;
  brush.shadowColor = "rgb(0 0 0 / 0.25)";
  brush.shadowBlur = 6;
  brush.fillStyle = palette.background;
  brush.fillRect(x - width / 2, y - height / 2, width, height);
  brush.shadowBlur = 0;
  paintCells(brush, x - width / 2, y - height / 2, width, height, message.cells, scene, palette);
}
