/**
 * `polyrank-web/drawing`: schedules, their timelines and their prices, as polyrank itself makes
 * them. Needs no group and no network.
 */

/** A collective and the ways to run it. */
export interface Collective {
  /** `allreduce`, `reduce_scatter`, … */
  name: string;
  /** Whether one rank is the root. */
  rooted: boolean;
  /** Whether elements are reduced. */
  reduces: boolean;
  algorithms: Algorithm[];
}

/** One way to run a collective. */
export interface Algorithm {
  /** The name that `POLYRANK_ALGORITHM` takes. */
  name: string;
  /** When it is meant to be used, in one line. */
  meantFor: string;
}

/** The data that a rank came with: the rank, and the block of its starting buffer. */
export type Origin = [rank: number, block: number];

/** The origins whose reduction a block holds; null where it holds nothing to rely on. */
export type Holds = Origin[] | null;

/** One rank's contribution or result in a buffer. */
export interface Block {
  buffer: "input" | "output" | "scratch";
  index: number;
}

/** `count` consecutive parts, from `part` on, of a block cut into `parts` parts. */
export interface Chunk {
  block: Block;
  part: number;
  count: number;
  parts: number;
}

/** One step of one rank, and when it happens. */
export interface Step {
  kind: "send" | "recv" | "recvReduce" | "reduce" | "copy";
  /** What is read: what is sent or copied, or the operand of a reduction besides what came. */
  from: Chunk | null;
  /** What is written. */
  into: Chunk | null;
  /** The rank and the step at the other end of the message. */
  partner: [rank: number, step: number] | null;
  /** How many messages follow one another until it is done. */
  round: number;
  /** Model seconds at which it begins and ends. */
  beginS: number;
  endS: number;
  /** Its places in an order in which all steps of all ranks can begin and end. */
  begins: number;
  ends: number;
  /** What it does, in words. */
  text: string;
}

/** One rank's part of a schedule. */
export interface Part {
  /** What the blocks of the buffers hold at the start. */
  input: Holds[];
  output: Holds[];
  /** What the blocks of the output must hold at the end. */
  after: Holds[];
  /** For each block of scratch, the block whose size it has, and how many times. */
  scratch: { like: Block; times: number }[];
  steps: Step[];
}

/** The schedules of all ranks. */
export interface Drawing {
  blockBytes: number;
  /** The messages that follow one another on the longest path. */
  rounds: number;
  /** Model seconds until the last rank is done. */
  seconds: number;
  ranks: Part[];
}

/** Every collective, with its algorithms. */
export function collectives(): Collective[];

/**
 * The schedules of all ranks with their timeline. `bytes` is the whole: of the tensor, or of all
 * blocks together.
 *
 * @throws Error for unknown names, a root that is not a rank, and more than 64 ranks.
 */
export function schedule(
  collective: string,
  algorithm: string,
  ranks: number,
  root: number,
  bytes: number,
): Drawing;

/** Model seconds that each algorithm costs for each of the sizes: `[algorithm][size]`. */
export function prices(collective: string, ranks: number, bytes: Float64Array): Float64Array[];

/** The index of the algorithm that polyrank picks for each of the sizes. */
export function selection(collective: string, ranks: number, bytes: Float64Array): Uint32Array;
