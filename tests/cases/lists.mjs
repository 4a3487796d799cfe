// Calls in which one rank gives several tensors, in JavaScript: README.md says what they are.
// Knows nothing of how a collective is run.

const SENTINEL = -7;

/** What differs from what these calls must leave, a line for each call that did. */
export async function lists(pr, group) {
  const [rank, world] = [group.rank(), group.size()];
  const wrong = [];
  for (const call of calls(world)) {
    const make = (_, tensor) => place(pr, call, rank, tensor);
    const tensors = Array.from({ length: call.tensors }, make);
    const options = { rootRank: call.root, rootTensor: call.rootTensor };
    const given = tensors.map(({ tensor }) => tensor);
    await group[call.method](given, call.method === "allreduce" ? {} : options);
    const got = tensors.map(({ array }) => [...array]);
    const expected = given.map((_, tensor) => memory(call, outcome(call, rank, tensor, world)));
    if (JSON.stringify(got) !== JSON.stringify(expected)) {
      const shown = [call, expected, got].map((it) => JSON.stringify(it));
      wrong.push(`${shown[0]}: expected ${shown[1]}, got ${shown[2]}`);
    }
  }
  for (const method of ["allgather", "reduceScatter"]) {
    for (const call of callsOf(method)) wrong.push(...(await blocks(pr, group, call)));
  }
  return wrong;
}

function* callsOf(method) {
  for (const tensors of [1, 2, 3]) {
    for (const elements of [0, 1, 5]) {
      for (const strided of [false, true]) yield { method, tensors, elements, strided };
    }
  }
}

/** What differs after a call with a place for each tensor of each rank in every list. */
async function blocks(pr, group, call) {
  const [rank, world] = [group.rank(), group.size()];
  const { method, tensors: count, elements } = call;
  const counts = (length) => Array.from({ length }, (_, at) => at);
  const [tensors, places] = [counts(count), counts(count * world)];
  const empty = new Array(elements).fill(SENTINEL);
  const part = (from, index, at) => before(call, from, index).map((value) => value + 10 * at);
  const gathers = method === "allgather";
  const lists = tensors.map((index) => {
    return places.map((at) => made(pr, call, gathers ? empty : part(rank, index, at)));
  });
  const flat = tensors.map((tensor) => {
    return made(pr, call, gathers ? before(call, rank, tensor) : empty);
  });
  const given = [lists.map((list) => list.map((it) => it.tensor)), flat.map((it) => it.tensor)];
  await group[method](...(gathers ? given : given.reverse()));
  const all = places.map((at) => before(call, Math.floor(at / count), at % count));
  const sums = tensors.map((tensor) => {
    const parts = counts(world).flatMap((from) => {
      return tensors.map((index) => part(from, index, count * rank + tensor));
    });
    return empty.map((_, at) => parts.reduce((sum, values) => sum + values[at], 0));
  });
  const got = (gathers ? lists.flat() : flat).map(({ array }) => [...array]);
  const values = gathers ? tensors.flatMap(() => all) : sums;
  const expected = values.map((it) => memory(call, it));
  if (JSON.stringify(got) === JSON.stringify(expected)) return [];
  const shown = [call, expected, got].map((it) => JSON.stringify(it));
  return [`${shown[0]}: expected ${shown[1]}, got ${shown[2]}`];
}

function* calls(world) {
  for (const tensors of [1, 2, 3]) {
    for (const elements of [0, 1, 5]) {
      for (const strided of [false, true]) {
        yield { method: "allreduce", tensors, elements, strided, root: 0, rootTensor: 0 };
        for (const root of new Set([0, world - 1])) {
          for (let rootTensor = 0; rootTensor < tensors; rootTensor += 1) {
            for (const method of ["broadcast", "reduce"]) {
              yield { method, tensors, elements, strided, root, rootTensor };
            }
          }
        }
      }
    }
  }
}

/** An array and the tensor in it. */
function place(pr, call, rank, tensor) {
  return made(pr, call, before(call, rank, tensor));
}

function made(pr, call, values) {
  const array = Int32Array.from(memory(call, values));
  const shape = [call.elements];
  return { array, tensor: call.strided ? pr.tensor(array, { shape, strides: [2] }) : array };
}

/** The elements, with a gap behind each if they are strided. */
function memory(call, values) {
  return call.strided ? values.flatMap((value) => [value, SENTINEL]) : values;
}

function before({ elements }, rank, tensor) {
  return Array.from({ length: elements }, (_, at) => 1000 * rank + 100 * tensor + at);
}

function outcome(call, rank, tensor, world) {
  const { method, root, rootTensor } = call;
  if (method === "broadcast") return before(call, root, rootTensor);
  const isResult = method === "allreduce" || (rank === root && tensor === rootTensor);
  return isResult ? sum(call, world) : before(call, rank, tensor);
}

function sum(call, world) {
  const all = new Array(call.elements).fill(0);
  for (let rank = 0; rank < world; rank += 1) {
    for (let tensor = 0; tensor < call.tensors; tensor += 1) {
      before(call, rank, tensor).forEach((value, at) => {
        all[at] += value;
      });
    }
  }
  return all;
}
