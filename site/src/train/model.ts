// Softmax regression on images of digits. Pure: data in, numbers out; knows no ranks.

/** The pixels of an image, and a one for the bias. */
export const INPUTS = 65;
export const CLASSES = 10;
export const SIDE = 8;
/** The number of weights; a gradient has the loss behind them. */
export const WEIGHTS = INPUTS * CLASSES;

/** An image with its digit. */
export interface Example {
  inputs: Float64Array;
  digit: number;
}

/** Reads lines of 64 pixels from 0 to 16 and a digit; every fifth image is for testing. */
export function readExamples(text: string): { training: Example[]; testing: Example[] } {
  const training: Example[] = [];
  const testing: Example[] = [];
  text
    .trim()
    .split("\n")
    .forEach((line, index) => {
      const numbers = line.split(",").map(Number);
      const digit = numbers.pop()!;
      const set = index % 5 === 4 ? testing : training;
      set.push({ inputs: inputsOf(numbers), digit });
    });
  return { training, testing };
}

/** What the model sees of 64 pixels from 0 to 16. */
export function inputsOf(pixels: readonly number[]): Float64Array {
  return Float64Array.from([...pixels.map((pixel) => pixel / 16), 1]);
}

/** How much the image looks like each digit. */
export function scores(weights: Float32Array, inputs: Float64Array): Float64Array {
  const found = new Float64Array(CLASSES);
  for (let input = 0; input < INPUTS; input += 1) {
    const value = inputs[input]!;
    for (let digit = 0; digit < CLASSES; digit += 1) {
      found[digit]! += value * weights[input * CLASSES + digit]!;
    }
  }
  return found;
}

/** The probability of each digit. */
export function probabilities(weights: Float32Array, inputs: Float64Array): Float64Array {
  const found = scores(weights, inputs);
  const largest = Math.max(...found);
  const exponentials = found.map((score) => Math.exp(score - largest));
  const sum = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((exponential) => exponential / sum);
}

/** The sum over the examples of the gradient of the loss, with the sum of the losses behind it. */
export function gradient(weights: Float32Array, examples: readonly Example[]): Float32Array {
  const total = new Float64Array(WEIGHTS + 1);
  for (const { inputs, digit } of examples) {
    const errors = probabilities(weights, inputs);
    total[WEIGHTS]! -= Math.log(Math.max(errors[digit]!, Number.MIN_VALUE));
    errors[digit]! -= 1;
    for (let input = 0; input < INPUTS; input += 1) {
      const value = inputs[input]!;
      for (let one = 0; one < CLASSES; one += 1) {
        total[input * CLASSES + one]! += value * errors[one]!;
      }
    }
  }
  return Float32Array.from(total);
}

/**
 * One step against the gradient of a batch. Each operation is rounded to binary32, so that every
 * rank, in any language, gets the same bits from the same sum.
 */
export function descend(
  weights: Float32Array,
  total: Float32Array,
  batchSize: number,
  rate: number,
): void {
  const step = Math.fround(rate / batchSize);
  for (let at = 0; at < WEIGHTS; at += 1) {
    weights[at] = Math.fround(weights[at]! - Math.fround(step * total[at]!));
  }
}

/** How many of the examples are read right. */
export function countRight(weights: Float32Array, examples: readonly Example[]): number {
  return examples.filter(({ inputs, digit }) => guess(weights, inputs) === digit).length;
}

/** The most probable digit. */
export function guess(weights: Float32Array, inputs: Float64Array): number {
  const found = scores(weights, inputs);
  return found.indexOf(Math.max(...found));
}

/** FNV-1a of the weights' bytes, to be compared by eye. */
export function fingerprint(weights: Float32Array): string {
  let value = 0x811c9dc5;
  for (const byte of new Uint8Array(weights.buffer, weights.byteOffset, weights.byteLength)) {
    value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  }
  return value.toString(16).padStart(8, "0");
}
