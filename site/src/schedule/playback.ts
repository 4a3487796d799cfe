// Plays the schedules of all ranks on symbols: who holds whose data when, and what travels. Pure;
// knows nothing of pixels and frames.

import type { Block, Chunk, Drawing, Holds, Origin, Step } from "polyrank-web/drawing";

/** The origins whose data a cell holds, in the order in which they were reduced. */
export type Cell = readonly Origin[];

/** One block of one rank's buffers, cut into cells of equal size. */
export interface Strip {
  buffer: Block["buffer"];
  index: number;
  /** How many blocks' sizes it has: more than one for some scratch. */
  times: number;
  cells: readonly Cell[];
}

/** Cells that change at the end of a step. */
export interface Change {
  rank: number;
  strip: number;
  first: number;
  cells: readonly Cell[];
  round: number;
  endS: number;
  /** Place in the order of all changes. */
  order: number;
}

/** What travels between two ranks. */
export interface Message {
  sender: number;
  receiver: number;
  /** Empty for a message that only says "I am here". */
  cells: readonly Cell[];
  /** Whether the receiver reduces it into what it has. */
  reduces: boolean;
  round: number;
  beginS: number;
  endS: number;
  /** What is sent, in words. */
  text: string;
}

/** Everything that happens in a drawing. */
export interface Playback {
  ranks: number;
  rounds: number;
  seconds: number;
  start: readonly (readonly Strip[])[];
  changes: readonly Change[];
  messages: readonly Message[];
  /** Whether every output ends with what the collective promises. */
  keepsContract: boolean;
}

/** The time by which a drawing is shown: by rounds, or by seconds of the cost model. */
export type Clock = "rounds" | "seconds";

/** Runs the schedules once. */
export function play(drawing: Drawing): Playback {
  const cuts = commonCuts(drawing);
  const start = drawing.ranks.map((_, rank) => strips(drawing, rank, cuts));
  const state = start.map((own) => own.map((strip) => ({ ...strip, cells: [...strip.cells] })));
  const changes: Change[] = [];
  const messages: Message[] = [];
  const sent = new Map<string, Cell[]>();
  for (const { rank, number, step, isEnd } of events(drawing)) {
    const own = state[rank]!;
    if (step.kind === "send") {
      if (!isEnd) {
        sent.set(`${rank}/${number}`, read(own, step.from!));
      }
      continue;
    }
    if (!isEnd) {
      continue;
    }
    const incoming = step.partner ? (sent.get(step.partner.join("/")) ?? []) : [];
    if (step.partner) {
      messages.push(message(drawing, rank, step, incoming));
    }
    const cells = result(step, incoming, own);
    if (step.into && cells.length > 0) {
      const strip = find(own, step.into.block);
      const first = cellAt(own[strip]!, step.into.part, step.into);
      own[strip]!.cells.splice(first, cells.length, ...cells);
      const { round, endS, ends: order } = step;
      changes.push({ rank, strip, first, cells, round, endS, order });
    }
  }
  const { rounds, seconds } = drawing;
  const keepsContract = drawing.ranks.every((part, rank) =>
    part.after.every((holds, index) => keeps(state[rank]!, index, holds)),
  );
  const ranks = drawing.ranks.length;
  return { ranks, rounds, seconds, start, changes, messages, keepsContract };
}

/** What every rank holds at a time. */
export function stateAt(playback: Playback, clock: Clock, time: number): Strip[][] {
  const state = playback.start.map((own) =>
    own.map((strip) => ({ ...strip, cells: [...strip.cells] })),
  );
  for (const change of playback.changes) {
    if (endOf(change, clock) <= time) {
      const cells = state[change.rank]![change.strip]!.cells;
      cells.splice(change.first, change.cells.length, ...change.cells);
    }
  }
  return state;
}

/** When a message leaves, on a clock. */
export function beginOf(message: Message, clock: Clock): number {
  return clock === "rounds" ? message.round - 1 : message.beginS;
}

/** When a message has arrived, or a change is made, on a clock. */
export function endOf(happening: { round: number; endS: number }, clock: Clock): number {
  return clock === "rounds" ? happening.round : happening.endS;
}

/** How long the whole takes on a clock. */
export function duration(playback: Playback, clock: Clock): number {
  return clock === "rounds" ? playback.rounds : playback.seconds;
}

/** The fewest equal cells of one block's size such that every chunk is whole cells. */
function commonCuts(drawing: Drawing): number {
  let cuts = 1;
  for (const { steps, scratch } of drawing.ranks) {
    for (const { from, into } of steps) {
      for (const chunk of [from, into]) {
        if (chunk && chunk.count > 0) {
          const { buffer, index } = chunk.block;
          const times = buffer === "scratch" ? scratch[index]!.times : 1;
          const parts = chunk.parts / greatestCommonDivisor(chunk.parts, times);
          cuts = (cuts / greatestCommonDivisor(cuts, parts)) * parts;
        }
      }
    }
  }
  return cuts;
}

function greatestCommonDivisor(a: number, b: number): number {
  let [larger, smaller] = [a, b];
  while (smaller > 0) {
    [larger, smaller] = [smaller, larger % smaller];
  }
  return larger;
}

function strips(drawing: Drawing, rank: number, cuts: number): Strip[] {
  const { input, output, scratch } = drawing.ranks[rank]!;
  const strip = (buffer: Strip["buffer"], index: number, holds: Holds, times: number) => {
    const cells = Array.from({ length: cuts * times }, () => holds ?? []);
    return { buffer, index, times, cells };
  };
  return [
    ...input.map((holds, index) => strip("input", index, holds, 1)),
    ...output.map((holds, index) => strip("output", index, holds, 1)),
    ...scratch.map(({ times }, index) => strip("scratch", index, null, times)),
  ];
}

interface Event {
  rank: number;
  number: number;
  step: Step;
  isEnd: boolean;
  order: number;
}

/** Beginnings and ends of all steps, in an order in which they can happen. */
function events(drawing: Drawing): Event[] {
  const all = drawing.ranks.flatMap(({ steps }, rank) =>
    steps.flatMap((step, number) => [
      { rank, number, step, isEnd: false, order: step.begins },
      { rank, number, step, isEnd: true, order: step.ends },
    ]),
  );
  return all.sort((a, b) => a.order - b.order);
}

function find(own: readonly Strip[], block: Block): number {
  return own.findIndex(({ buffer, index }) => buffer === block.buffer && index === block.index);
}

/** The cell at which a part of a chunk's block begins. */
function cellAt(strip: Strip, part: number, chunk: Chunk): number {
  return (part * strip.cells.length) / chunk.parts;
}

function read(own: readonly Strip[], chunk: Chunk): Cell[] {
  const strip = own[find(own, chunk.block)];
  if (chunk.count === 0 || !strip) {
    return [];
  }
  const first = cellAt(strip, chunk.part, chunk);
  return strip.cells.slice(first, cellAt(strip, chunk.part + chunk.count, chunk));
}

/** The cells that a step writes. */
function result(step: Step, incoming: Cell[], own: readonly Strip[]): Cell[] {
  const both = (a: Cell[], b: Cell[]) => a.map((cell, index) => [...cell, ...(b[index] ?? [])]);
  switch (step.kind) {
    case "recv":
      return incoming;
    case "recvReduce":
      return both(read(own, step.from!), incoming);
    case "reduce":
      return both(read(own, step.into!), read(own, step.from!));
    case "copy":
      return read(own, step.from!);
    case "send":
      return [];
  }
}

function message(drawing: Drawing, receiver: number, step: Step, cells: Cell[]): Message {
  const [sender, number] = step.partner!;
  const send = drawing.ranks[sender]!.steps[number]!;
  const reduces = step.kind === "recvReduce";
  const { round, endS } = step;
  const text = send.text.replace(/^send /, "").replace(/ to rank \d+$/, "");
  return { sender, receiver, cells, reduces, round, beginS: send.beginS, endS, text };
}

/** Whether an output block holds each of the promised origins once, and nothing else. */
function keeps(own: readonly Strip[], index: number, holds: Holds): boolean {
  if (!holds) {
    return true;
  }
  const sorted = (cell: Cell) => cell.map((origin) => origin.join()).sort().join(" ");
  const cells = own[find(own, { buffer: "output", index })]?.cells ?? [];
  return cells.every((cell) => sorted(cell) === sorted(holds));
}
