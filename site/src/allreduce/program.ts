// What each rank of "Allreduce in your tabs" does: it adds up values with the others, again and
// again. Runs in a page, a worker or Node; knows nothing of how values are shown.

import type { Pr } from "../rooms/room";

/** How many values each rank has. */
export const VALUES = 8;

/** The operators to choose from. */
export const OPERATORS = ["SUM", "AVG", "MIN", "MAX", "PRODUCT"] as const;
export type Operator = (typeof OPERATORS)[number];

/** The sizes of a tensor to choose from, in bytes; what is behind the values is ballast. */
export const PAYLOADS: readonly number[] = [32, 4096, 65_536, 1_048_576, 4_194_304];

/** What a user of this rank wants now. */
export interface Wishes {
  values: readonly number[];
  /** The last choices made here, as places in the lists above. */
  operator: Wish | null;
  payload: Wish | null;
}

/** A choice; it counts once, until somebody chooses otherwise. */
export interface Wish {
  index: number;
  /** Tells it from the choice before. */
  number: number;
}

/** How one turn went. */
export interface Turn {
  number: number;
  operator: Operator;
  payloadBytes: number;
  /** The reduction of all ranks' values. */
  result: number[];
  /** What each rank gave. */
  contributions: number[][];
  /** How long the allreduce took. */
  seconds: number;
}

/** The least time between two turns: nobody sees more. */
const PACE_MS = 30;

/**
 * Takes turns until `isOver`. All ranks must agree on operator and size, so every turn begins with
 * an allreduce of choices: each is numbered, and the latest wins.
 *
 * @throws what a collective throws, when a rank is gone for example.
 */
export async function takeTurns(
  pr: Pr,
  wishes: () => Wishes,
  report: (turn: Turn) => void,
  isOver: () => boolean,
): Promise<void> {
  const size = pr.getWorldSize();
  const choices = [new Choice(OPERATORS.length), new Choice(PAYLOADS.length)] as const;
  let tensor = new Float32Array(VALUES);
  for (let number = 1; !isOver(); number += 1) {
    const began = performance.now();
    const { values, operator, payload } = wishes();
    choices[0].wish(operator);
    choices[1].wish(payload);
    const agreed = Int32Array.from(choices, (choice) => choice.code);
    await pr.allReduce(agreed, { op: pr.ReduceOp.MAX });
    choices.forEach((choice, index) => choice.settle(agreed[index]!));
    const chosen = OPERATORS[choices[0].index]!;
    const payloadBytes = PAYLOADS[choices[1].index]!;
    if (tensor.byteLength !== payloadBytes) {
      tensor = new Float32Array(payloadBytes / 4);
    }
    tensor.fill(0);
    tensor.set(values);
    const issued = performance.now();
    await pr.allReduce(tensor, { op: pr.ReduceOp[chosen] });
    const seconds = (performance.now() - issued) / 1000;
    const result = [...tensor.subarray(0, VALUES)];
    const contributions = await gather(pr, values, size);
    const turn = { number, operator: chosen, payloadBytes, result, contributions, seconds };
    report(turn);
    await pause(PACE_MS - (performance.now() - began));
  }
}

/** A choice among a few that all ranks share; the last one made counts. */
class Choice {
  /** How many choices there were before, times `count`, and the place chosen. */
  code = 0;
  #heard = 0;

  constructor(private readonly count: number) {}

  get index(): number {
    return this.code % this.count;
  }

  /** A wish that is new is a later choice than all that are known. */
  wish(wish: Wish | null): void {
    if (wish && wish.number !== this.#heard) {
      this.#heard = wish.number;
      this.code = (Math.floor(this.code / this.count) + 1) * this.count + wish.index;
    }
  }

  settle(code: number): void {
    this.code = code;
  }
}

async function gather(pr: Pr, values: readonly number[], size: number): Promise<number[][]> {
  const all = Array.from({ length: size }, () => new Float32Array(VALUES));
  await pr.allGather(all, Float32Array.from(values));
  return all.map((row) => [...row]);
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resume) => setTimeout(resume, Math.max(0, milliseconds)));
}
