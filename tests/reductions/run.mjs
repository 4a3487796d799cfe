// A JavaScript rank that reduces with functions of its own among ranks of any language, in Node or
// in a browser.
//
// run.py is the same in Python, examples/reductions.rs in Rust; expected values come from the same
// fold on every rank.

const COUNTS = [0, 1, 67, 40_003];

export async function main(pr, here) {
  await pr.initProcessGroup({ ...here.init, timeout: 30_000 });
  const [rank, size] = [pr.getRank(), pr.getWorldSize()];
  const op = pr.ReduceOp.custom(combine);
  for (const count of COUNTS) {
    const tensor = values(rank, count);
    await pr.allReduce(tensor, { op });
    const all = Array.from({ length: size }, (_, other) => values(other, count));
    const expected = all.reduce(combine);
    if (!tensor.every((value, index) => value === expected[index])) {
      throw new Error(`${count} elements`);
    }
  }
  await pr.destroyProcessGroup();
  here.say(`${here.language} rank ${rank} of ${size}: ${COUNTS.length} reductions`);
  return 0;
}

/** Neither commutes nor is it associative. */
function combine(lower, upper) {
  return lower.map((value, index) => 2 * value + upper[index]);
}

function values(rank, count) {
  return Float64Array.from({ length: count }, (_, index) => rank * 1000 + index);
}
