// Memory: arrays that go away while an operation runs, memory that polyrank owns and that moves.

import { equal, fails, ok } from "../check.mjs";

async function pair(pr) {
  const store = new pr.HashStore();
  return Promise.all([0, 1].map((rank) => pr.ProcessGroup.join(store, rank, 2)));
}

async function leave(groups) {
  await Promise.all(groups.map((group) => group.shutdown()));
}

/** Fills the module's memory with tensors of `elements`, until it has had to grow for the last: a
 * copy of as many must make it grow again. */
function filled(pr, elements) {
  const blocks = [pr.alloc("f32", [elements])];
  const { buffer } = blocks[0].data;
  while (blocks[0].data.buffer === buffer) blocks.push(pr.alloc("f32", [elements]));
  return blocks;
}

export const memory = {
  async "memory of polyrank is used in place, and survives that the module's memory moves"(pr) {
    const groups = await pair(pr);
    const tensors = groups.map(() => pr.alloc("f64", [1000]));
    tensors.forEach((tensor, rank) => tensor.data.fill(rank + 1));
    const before = tensors[0].data;
    const more = pr.alloc("u8", [64 << 20]);
    ok(more.data.every((byte) => byte === 0), "new memory is zero");
    equal(before.length, 0, "an old view, after memory grew");
    await Promise.all(groups.map((group, rank) => group.allreduce(tensors[rank])));
    tensors.forEach((tensor) => ok(tensor.data.every((value) => value === 3), "the sum"));
    await leave(groups);
  },

  async "a page has no CUDA tensors, and asking for one is an error that says so"(pr) {
    const place = { pointer: 4096n, dtype: "f32", shape: [1], owner: {} };
    for (const make of [
      () => pr.CudaTensor.from(new Float32Array(1)),
      () => pr.CudaTensor.zeros("f32", [1]),
      () => pr.CudaTensor.empty("f32", [1]),
      async () => pr.CudaTensor.fromPointer(place),
    ]) {
      await fails("Unsupported", "there are no CUDA devices", make);
    }
  },

  async "a call that fails though it was prepared fails its group on all ranks"(pr) {
    const groups = await pair(pr);
    // More than small copies before had, whose memory would be used again.
    const elements = 250_000;
    const complex = (array) => pr.tensor(array, { dtype: "complex64" });
    const other = new Float32Array(elements).fill(1);
    const works = [groups[1].allreduce(complex(other))];
    const block = filled(pr, elements + 2).at(-1);
    // Gaps that are long enough for the copy, but not for such a block, are filled, too.
    const others = filled(pr, elements);
    const { data } = block;
    // In the middle of that memory's elements: it is copied, which makes the memory grow.
    const array = new Float32Array(data.buffer, data.byteOffset + 4, elements);
    const call = () => void groups[0].allreduce(complex(array));
    await fails("InvalidArgument", "memory of a tensor", call);
    works.push(groups[0].allreduce(complex(new Float32Array(elements).fill(100))));
    const text = "could not take part in allreduce";
    for (const work of works) await fails("Aborted", text, work);
    ok(others.length > 0, "they are alive");
  },

  async "arrays over polyrank's memory survive that the call itself makes that grow"(pr) {
    const groups = await pair(pr);
    const elements = 300_000;
    const places = () => [0, 1].map(() => new Float32Array(elements));
    const parts = groups.map(places);
    const other = new Float32Array(elements).fill(2);
    const works = [groups[1].allgather(parts[1], other)];
    const blocks = filled(pr, elements);
    const { data } = blocks.at(-1);
    data.fill(1);
    works.push(groups[0].allgather(parts[0], data));
    ok(blocks[0].data.buffer !== data.buffer, "the memory grew");
    await Promise.all(works);
    for (const [one, two] of parts) {
      ok(one.every((value) => value === 1) && two.every((value) => value === 2), "what came");
    }
    const tensor = blocks.at(-1);
    await Promise.all([
      groups[1].allreduce(other.subarray(1000)),
      groups[0].allreduce(tensor.data.subarray(1000)),
    ]);
    ok(tensor.data.every((value, at) => value === (at < 1000 ? 1 : 3)), "the sum");
    await leave(groups);
  },

  async "more memory than there is is refused, and nothing breaks"(pr) {
    let refused = 0;
    for (const count of [2 ** 31, 2 ** 40]) {
      try {
        pr.alloc("u8", [count]);
      } catch {
        refused += 1;
      }
    }
    equal(refused, 2);
    await fails("InvalidArgument", "too many elements", () => pr.alloc("f32", [2 ** 30, 2, 0]));
    equal(pr.alloc("f32", [2 ** 28, 0]).data.length, 0);
    equal(await new pr.HashStore().add("alive", 1), 1);
  },

  async "a call that throws leaves nothing behind"(pr) {
    const store = new pr.HashStore();
    const { signal } = new AbortController();
    const held = () => pr.alloc("u8", [1]).data.buffer.byteLength;
    const before = held();
    for (let time = 0; time < 100_000; time += 1) {
      await fails("InvalidType", "argument 'key'", () => store.get(time, { signal }));
    }
    ok(held() - before < 1 << 20, `${held() - before} bytes more`);
  },

  async "an array that is transferred away is noticed and not touched"(pr) {
    const groups = await pair(pr);
    const tensors = [new Float32Array(1000).fill(1), new Float32Array(1000).fill(2)];
    const works = [groups[0].allreduce(tensors[0])];
    structuredClone(tensors[0].buffer, { transfer: [tensors[0].buffer] });
    works.push(groups[1].allreduce(tensors[1]));
    await fails("InvalidArgument", "memory of a tensor", works[0]);
    await works[1];
    ok(tensors[1].every((value) => value === 3), "the other rank has its sum");
    await leave(groups);
  },

  async "an array that is cut shorter is noticed and not touched"(pr) {
    const groups = await pair(pr);
    const buffer = new ArrayBuffer(4000, { maxByteLength: 8000 });
    const tensors = [new Float32Array(buffer).fill(1), new Float32Array(1000).fill(2)];
    const works = [groups[0].allreduce(tensors[0])];
    buffer.resize(400);
    works.push(groups[1].allreduce(tensors[1]));
    await fails("InvalidArgument", "while", works[0]);
    await works[1];
    await leave(groups);
  },

  async "large tensors are copied in slices, and events go on meanwhile"(pr) {
    const groups = await pair(pr);
    const elements = (24 << 20) / 4;
    const tensors = groups.map((_, rank) => new Float32Array(elements).fill(rank + 1));
    let turns = 0;
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      turns += 1;
      channel.port2.postMessage(null);
    };
    channel.port2.postMessage(null);
    await Promise.all(groups.map((group, rank) => group.allreduce(tensors[rank])));
    channel.port1.close();
    // In and out, two ranks, 4 MiB a turn.
    ok(turns >= 20, `${turns} other events had their turn`);
    tensors.forEach((tensor) => ok(tensor.every((value) => value === 3), "the sum"));
    await leave(groups);
  },

  async "views that share memory are told apart from those that do not"(pr) {
    const groups = await pair(pr);
    const buffer = new Float32Array(8);
    const halves = [buffer.subarray(0, 4), buffer.subarray(4, 8)];
    const other = [new Float32Array(4), new Float32Array(4)];
    const mine = [Float32Array.of(1, 2, 3, 4), Float32Array.of(5, 6, 7, 8)];
    await Promise.all([
      groups[0].allgather(halves, mine[0]),
      groups[1].allgather(other, mine[1]),
    ]);
    equal(buffer, Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8));
    await leave(groups);
  },

  async "strided tensors and other element types travel"(pr) {
    const groups = await pair(pr);
    const data = groups.map((_, rank) => Float64Array.of(1, 2, 3, 4, 5, 6).map((x) => x + rank));
    const columns = data.map((it) => pr.tensor(it, { shape: [3], strides: [2], offset: 1 }));
    await Promise.all(groups.map((group, rank) => group.allreduce(columns[rank])));
    equal(data[0], Float64Array.of(1, 5, 3, 9, 5, 13));
    const halves = groups.map(() => Uint16Array.of(0x3c00, 0x4000));
    await Promise.all(groups.map((group, rank) => {
      return group.allreduce(pr.tensor(halves[rank], { dtype: "f16" }));
    }));
    equal(halves[1], Uint16Array.of(0x4000, 0x4400));
    await leave(groups);
  },
};
