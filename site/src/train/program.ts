// What each rank of "Train together" does: it computes the gradient over its share of every batch,
// adds it up with the others', and takes the same step as they do. Runs in a page, a worker or
// Node; knows nothing of how the loss is shown.

import type { ProcessGroup } from "polyrank-web";
import type { Pr } from "../rooms/room";
import { countRight, descend, fingerprint, gradient, WEIGHTS, type Example } from "./model";

const EPOCHS = 40;
const BATCH = 256;
const LEARNING_RATE = 0.5;
/** The least time for an epoch: the curve is there to be watched. */
const PACE_MS = 120;

/** How far the training is. */
export interface Progress {
  epoch: number;
  epochs: number;
  /** The mean over the epoch. */
  loss: number;
  /** The share of the images for testing that are read right. */
  accuracy: number;
  weights: Float32Array;
  /** Of this rank's weights. */
  fingerprint: string;
  /** Images of a batch that were this rank's. */
  share: number;
  /** Whether all ranks have the same bits; known at the end. */
  isSame: boolean | null;
}

/**
 * Trains with all ranks of the default group, until done or `isOver`.
 *
 * @throws what a collective throws, when a rank is gone for example.
 */
export async function train(
  pr: Pr,
  examples: { training: readonly Example[]; testing: readonly Example[] },
  report: (progress: Progress) => void,
  isOver: () => boolean,
): Promise<void> {
  const { training, testing } = examples;
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const weights = new Float32Array(WEIGHTS);
  const isMine = (_: Example, index: number) => index % size === rank;
  for (let epoch = 1; epoch <= EPOCHS && !isOver(); epoch += 1) {
    const began = performance.now();
    let loss = 0;
    let share = 0;
    for (let start = 0; start < training.length; start += BATCH) {
      const batch = training.slice(start, start + BATCH);
      const mine = batch.filter(isMine);
      share = Math.max(share, mine.length);
      const total = gradient(weights, mine);
      await pr.allReduce(total);
      descend(weights, total, batch.length, LEARNING_RATE);
      loss += total[WEIGHTS]!;
    }
    const right = Int32Array.of(countRight(weights, testing.filter(isMine)));
    await pr.allReduce(right);
    const isSame = epoch === EPOCHS ? await isSameEverywhere(pr, weights) : null;
    report({
      epoch,
      epochs: EPOCHS,
      loss: loss / training.length,
      accuracy: right[0]! / testing.length,
      weights: weights.slice(),
      fingerprint: fingerprint(weights),
      share,
      isSame,
    });
    const rest = PACE_MS - (performance.now() - began);
    await new Promise((resume) => setTimeout(resume, Math.max(0, rest)));
  }
}

/**
 * Whether every rank of the group, the default one if none is given, holds these bits: their
 * smallest and largest pattern are then equal.
 */
export async function isSameEverywhere(
  pr: Pr,
  weights: Float32Array,
  group: ProcessGroup | null = null,
): Promise<boolean> {
  const smallest = new Uint32Array(weights.slice().buffer);
  const largest = smallest.slice();
  await pr.allReduce(smallest, { op: pr.ReduceOp.MIN, group });
  await pr.allReduce(largest, { op: pr.ReduceOp.MAX, group });
  return smallest.every((bits, at) => bits === largest[at]);
}
