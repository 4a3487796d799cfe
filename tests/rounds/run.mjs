// A JavaScript rank that reduces a number again and again until somebody says stop, in Node or in a
// browser alike.
//
// For tests of what goes wrong meanwhile: run.py is the same in Python, examples/rounds.rs in Rust.
// Prints every hundredth round, and the first error with the time at which it came.

const SHOWN = 100;

/** Reduces until the sum says stop; the exit code is 3 if an operation failed. */
export async function main(pr, here) {
  await pr.initProcessGroup({ ...here.init, timeout: 30_000 });
  const rank = pr.getRank();
  const name = `${here.language} rank ${rank}`;
  here.say(`${name} is process ${globalThis.process?.pid ?? "a page"}`);
  let rounds = 0;
  try {
    for (;;) {
      const stop = Int32Array.of(0);
      await pr.allReduce(stop, { op: pr.ReduceOp.MAX });
      rounds += 1;
      if (rounds % SHOWN === 0) {
        here.say(`${name}: round ${rounds}`);
      }
      if (stop[0] !== 0) {
        break;
      }
    }
    await pr.destroyProcessGroup();
  } catch (error) {
    here.say(`${name}: ${error.kind} of ${error.rank} at ${Date.now()}: ${error.message}`);
    return 3;
  }
  here.say(`${name}: stopped after ${rounds} rounds`);
  return 0;
}
