// A rank in a Worker: joins at the port that it is given first, and then runs the functions whose
// texts come, each with `{ pr, group, rank, store }`; the group is
// the default one unless it is named.

let joined;
let answer = Promise.resolve();

onmessage = ({ data }) => {
  if (joined === undefined) {
    joined = join(data);
    return;
  }
  // What two messages ask for is run one after the other.
  answer = answer.then(() => run(data));
};

async function join({ port, rank, size, groupName }) {
  const pr = await import("polyrank-web");
  const { MessagePortStore } = await import("polyrank-web/workers");
  const store = await MessagePortStore.connect(port);
  const group = groupName === undefined
    ? await pr.initProcessGroup({ store, rank, worldSize: size })
    : await pr.ProcessGroup.join(store, rank, size, { groupName });
  return { pr, group, rank, store };
}

async function run({ id, text }) {
  try {
    const act = (0, eval)(text);
    postMessage({ id, value: await act(await joined) });
  } catch (error) {
    const value = { kind: error.kind ?? error.name, rank: error.rank, text: error.message };
    postMessage({ id, value });
  }
}
