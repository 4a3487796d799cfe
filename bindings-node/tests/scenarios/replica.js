// A replica that trains: its address, its name and how many steps it commits are its arguments. It
// prints a line of JSON for each step, and for each state that it takes.

import { Manager, QuorumError } from "polyrank";

const [address, name, steps, mode] = process.argv.slice(2);
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const manager = await Manager.start(1, {
  lighthouseAddr: address,
  replicaId: name,
  rank: 0,
  worldSize: 1,
  timeout: 20_000,
});
const model = { weights: new Float64Array(5).fill(name.length + name.charCodeAt(name.length - 1)) };
const load = (state) => {
  Object.assign(model, state);
  say({ loaded: [...model.weights] });
};
manager.registerStateDictFn("model", load, () => model);

while (manager.currentStep() < Number(steps)) {
  try {
    await manager.startQuorum();
  } catch (error) {
    if (error instanceof QuorumError) continue;
    throw error;
  }
  const gradient = new Float64Array(5).fill(manager.currentStep() + 1);
  // A step that takes its time: others have to have time to come back.
  if (mode === "slow") await new Promise((resolve) => setTimeout(resolve, 50));
  await manager.allreduce(gradient);
  const committed = await manager.shouldCommit();
  if (committed) model.weights = model.weights.map((weight, index) => weight + gradient[index]);
  say({ committed, step: manager.currentStep(), weights: [...model.weights] });
}
await manager.shutdown();
