// Softmax regression on handwritten digits, data-parallel: the JavaScript ranks of the demo, in
// Node and in a browser alike.
//
// digits.py is the same program in Python, tests/examples/digits.rs in Rust; ranks of all stand in
// one group. Every rank sums the gradient over its share of a batch, so that a share weighs as much
// as it has images; allreduce adds the shares; every rank takes the same step from the same sum, so
// that all hold the same weights to the last bit.

/** The pixels of an image, and a one for the bias. */
const INPUTS = 65;
const CLASSES = 10;
const EPOCHS = 40;
const BATCH = 256;
const LEARNING_RATE = 0.5;
const ACCURACY_WANTED = 0.93;
const DIFFERENCE_ALLOWED = 1e-5;

/** Trains with the other ranks, checks, and reports; the exit code is 0 if all is as wanted. */
export async function main(pr, here) {
  const [training, tests] = read(await here.load("tests/data/digits.csv"));
  await pr.initProcessGroup(here.init);
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const store = pr.defaultGroup().getGroupStore();
  const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];
  const tell = (key, text) => store.set(`${key}/${rank}`, encoder.encode(text));
  const hear = async (key, other) => decoder.decode(await store.get(`${key}/${other}`));
  await tell("language", here.language);
  const languages = [];
  for (let other = 0; other < size; other += 1) {
    languages.push(await hear("language", other));
  }

  const show = async (epoch, weights, loss) => {
    const counts = await countRight(pr, weights, tests, rank, size);
    if (rank === 0) {
      const number = String(epoch).padStart(2);
      here.say(`epoch ${number}: loss ${loss.toFixed(7)}, ${readRight(languages, counts)}`);
    }
  };
  const addUp = (total) => pr.allReduce(total);
  const [weights, loss] = await train(training, rank, size, addUp, show);
  const counts = await countRight(pr, weights, tests, rank, size);
  const share = (counts[2 * rank] / counts[2 * rank + 1]).toFixed(4);
  const same = await isSameEverywhere(pr, weights);
  const name = here.language.padEnd(8);
  await tell("result", `${name}  ${loss.toFixed(7)}  ${share}    ${fingerprint(weights)}`);
  let good = same && rightOfAll(counts) >= ACCURACY_WANTED;
  if (rank === 0) {
    const [alone] = await train(training, 0, 1, () => {}, () => {});
    const difference = weights.reduce((most, w, at) => Math.max(most, Math.abs(w - alone[at])), 0);
    good = good && difference <= DIFFERENCE_ALLOWED;
    here.say("rank  language  loss       accuracy  weights");
    for (let other = 0; other < size; other += 1) {
      here.say(`${String(other).padStart(4)}  ${await hear("result", other)}`);
    }
    here.say(`weights are ${same ? "the same bits" : "DIFFERENT"} on all ${size} ranks`);
    here.say(`largest difference to a single process: ${difference.toExponential(1)}`);
  }
  await pr.destroyProcessGroup();
  return good ? 0 : 1;
}

/** The images for training and for testing; every fifth is for testing. */
export function read(text) {
  const sets = [[], []];
  for (const [index, line] of text.trim().split("\n").entries()) {
    const numbers = line.split(",").map(Number);
    const digit = numbers.pop();
    const inputs = Float64Array.from([...numbers.map((pixel) => pixel / 16), 1]);
    sets[index % 5 === 4 ? 1 : 0].push({ inputs, digit });
  }
  return sets;
}

/**
 * The weights (input by class) and the last epoch's mean loss. `addUp` sums a vector over the
 * ranks, in place; `show` is told the weights and the mean loss after each epoch.
 */
async function train(images, rank, size, addUp, show) {
  const weights = new Float32Array(INPUTS * CLASSES);
  let meanLoss = 0;
  for (let epoch = 1; epoch <= EPOCHS; epoch += 1) {
    let loss = 0;
    for (let start = 0; start < images.length; start += BATCH) {
      const batch = images.slice(start, start + BATCH);
      const total = gradient(weights, batch.filter((_, index) => index % size === rank));
      await addUp(total);
      // Single operations of IEEE 754 on binary32, each rounded: every language has the same.
      const step = Math.fround(LEARNING_RATE / batch.length);
      for (let at = 0; at < weights.length; at += 1) {
        weights[at] = Math.fround(weights[at] - Math.fround(step * total[at]));
      }
      loss += total[weights.length];
    }
    meanLoss = loss / images.length;
    await show(epoch, weights, meanLoss);
  }
  return [weights, meanLoss];
}

/**
 * The sum over the images of the gradient, with the sum of the losses behind it.
 *
 * Languages may round differently here: what counts is that all ranks get the same sum.
 */
export function gradient(weights, images) {
  const total = new Float64Array(INPUTS * CLASSES + 1);
  for (const { inputs, digit } of images) {
    let errors = scores(weights, inputs);
    const largest = Math.max(...errors);
    const scoreOfDigit = errors[digit] - largest;
    errors = errors.map((score) => Math.exp(score - largest));
    const sum = errors.reduce((a, b) => a + b, 0);
    total[INPUTS * CLASSES] += Math.log(sum) - scoreOfDigit;
    errors = errors.map((exponential) => exponential / sum);
    errors[digit] -= 1;
    for (let input = 0; input < INPUTS; input += 1) {
      for (let digitClass = 0; digitClass < CLASSES; digitClass += 1) {
        total[input * CLASSES + digitClass] += inputs[input] * errors[digitClass];
      }
    }
  }
  return Float32Array.from(total);
}

/** How much the image looks like each digit. */
function scores(weights, inputs) {
  const found = new Float64Array(CLASSES);
  for (let input = 0; input < INPUTS; input += 1) {
    for (let digitClass = 0; digitClass < CLASSES; digitClass += 1) {
      found[digitClass] += inputs[input] * weights[input * CLASSES + digitClass];
    }
  }
  return found;
}

/** For each rank, how many of its images it reads right and how many it has. */
async function countRight(pr, weights, images, rank, size) {
  const mine = images.filter((_, index) => index % size === rank);
  const readsRight = ({ inputs, digit }) => {
    const found = scores(weights, inputs);
    return found.indexOf(Math.max(...found)) === digit;
  };
  const counts = new Int32Array(2 * size);
  counts.set([mine.filter(readsRight).length, mine.length], 2 * rank);
  await pr.allReduce(counts);
  return counts;
}

function rightOfAll(counts) {
  const sum = (parity) => counts.filter((_, at) => at % 2 === parity).reduce((a, b) => a + b, 0);
  return sum(0) / sum(1);
}

/** The counts in words, of all ranks and of each. */
function readRight(languages, counts) {
  const share = (name, at) => `${name} ${(counts[2 * at] / counts[2 * at + 1]).toFixed(2)}`;
  return `${rightOfAll(counts).toFixed(4)} read right (${languages.map(share).join(", ")})`;
}

/** Whether every rank holds these bits: their smallest and largest pattern are then equal. */
async function isSameEverywhere(pr, weights) {
  const smallest = new Uint32Array(weights.slice().buffer);
  const largest = smallest.slice();
  await pr.allReduce(smallest, { op: pr.ReduceOp.MIN });
  await pr.allReduce(largest, { op: pr.ReduceOp.MAX });
  return smallest.every((bits, at) => bits === largest[at]);
}

/** FNV-1a of the weights' bytes, to be compared by eye. */
export function fingerprint(weights) {
  const bytes = new Uint8Array(weights.buffer);
  const step = (value, byte) => BigInt.asUintN(64, (value ^ BigInt(byte)) * 0x100000001b3n);
  return bytes.reduce(step, 0xcbf29ce484222325n).toString(16).padStart(16, "0");
}
