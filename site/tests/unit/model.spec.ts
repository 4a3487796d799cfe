// The model on the real data: its gradient against differences, its descent against known figures
// of this data set, and that shares add up.

import { readFile } from "node:fs/promises";
import { expect, test } from "@playwright/test";
import { pixelsOf, type Point } from "../../src/train/handwriting";
import {
  countRight,
  descend,
  gradient,
  guess,
  inputsOf,
  probabilities,
  readExamples,
  WEIGHTS,
} from "../../src/train/model";

const text = await readFile(new URL("../../../tests/data/digits.csv", import.meta.url), "utf8");
const { training, testing } = readExamples(text);

/** Weights after some epochs on one rank. */
function trained(epochs: number): Float32Array {
  const weights = new Float32Array(WEIGHTS);
  for (let epoch = 0; epoch < epochs; epoch += 1) {
    for (let start = 0; start < training.length; start += 256) {
      const batch = training.slice(start, start + 256);
      descend(weights, gradient(weights, batch), batch.length, 0.5);
    }
  }
  return weights;
}

const loss = (weights: Float32Array) => gradient(weights, training.slice(0, 50))[WEIGHTS]!;

test("the data is read", () => {
  expect([training.length, testing.length]).toEqual([1438, 359]);
  expect(training[0]!.digit).toBe(0);
  expect([...training[0]!.inputs.slice(0, 5)]).toEqual([0, 0, 5 / 16, 13 / 16, 9 / 16]);
  expect(training[0]!.inputs[64]).toBe(1);
});

test("the gradient is that of the loss", () => {
  const weights = trained(2);
  const total = gradient(weights, training.slice(0, 50));
  for (const at of [23, 205, 341, 498, 640, 649]) {
    const [more, less] = [weights.slice(), weights.slice()];
    more[at]! += 1e-2;
    less[at]! -= 1e-2;
    const slope = (loss(more) - loss(less)) / (more[at]! - less[at]!);
    expect(Math.abs(slope - total[at]!)).toBeLessThan(0.02 * Math.max(1, Math.abs(slope)));
  }
});

test("without weights every digit is equally likely", () => {
  const found = probabilities(new Float32Array(WEIGHTS), training[0]!.inputs);
  expect([...found].map((one) => one.toFixed(12))).toEqual(new Array(10).fill("0.100000000000"));
});

test("the gradient of all is the sum of the ranks' shares", () => {
  const weights = trained(1);
  const batch = training.slice(0, 256);
  const whole = gradient(weights, batch);
  const shares = [0, 1, 2].map((rank) =>
    gradient(
      weights,
      batch.filter((_, index) => index % 3 === rank),
    ),
  );
  whole.forEach((value, at) => {
    const sum = shares.reduce((before, share) => before + share[at]!, 0);
    expect(Math.abs(sum - value)).toBeLessThan(1e-3);
  });
});

test("forty epochs read more than 93 of 100 digits right", () => {
  const weights = trained(40);
  expect(countRight(weights, testing) / testing.length).toBeGreaterThan(0.93);
});

test("strokes become what the model knows", () => {
  const weights = trained(40);
  const circle = Array.from({ length: 41 }, (_, index): Point => {
    const angle = (2 * Math.PI * index) / 40;
    return { x: 0.5 + 0.13 * Math.cos(angle), y: 0.4 + 0.2 * Math.sin(angle) };
  });
  const pixels = pixelsOf([circle])!;
  expect(pixels).toHaveLength(64);
  expect(Math.max(...pixels)).toBeLessThanOrEqual(16);
  expect(guess(weights, inputsOf(pixels))).toBe(0);
  expect(pixelsOf([])).toBe(null);
});

test("where and how large a digit is drawn does not matter", () => {
  const draw = (scale: number, x: number, y: number): Point[] =>
    [
      [0, 0],
      [1, 0],
      [0.4, 1],
    ].map(([a, b]) => ({ x: x + a! * scale, y: y + b! * scale }));
  expect(pixelsOf([draw(0.25, 0.125, 0.25)])).toEqual(pixelsOf([draw(0.5, 0.25, 0.0625)]));
});
