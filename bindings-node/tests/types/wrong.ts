// Calls that must not compile: each line below a `@ts-expect-error` is an error, or the compiler
// says that the comment is one. Compiled, never run.

import * as pr from "polyrank";

declare const group: pr.ProcessGroup;
declare const store: pr.Store;
const array = new Float32Array(1);

export async function arguments_(): Promise<void> {
  // @ts-expect-error: lists of numbers are not tensors
  group.allreduce([1, 2, 3]);
  // @ts-expect-error: nor are numbers
  group.allreduce(5);
  // @ts-expect-error: nor are raw buffers
  group.allreduce(new ArrayBuffer(4));
  // @ts-expect-error: a misspelt option
  group.allreduce(array, { opp: pr.ReduceOp.SUM });
  // @ts-expect-error: an option of the list form
  group.allreduce(array, { reduceOp: pr.ReduceOp.SUM });
  // @ts-expect-error: an operator is not text
  group.allreduce(array, { op: "SUM" });
  // @ts-expect-error: a length of time is a number of ms
  group.allreduce(array, { timeout: "5s" });
  // @ts-expect-error: a root is needed
  group.broadcast(array);
  // @ts-expect-error: a root is a number
  group.broadcast(array, "0");
  // @ts-expect-error: one output for each rank
  group.allgather(array, array);
  // @ts-expect-error: no such operator
  pr.ReduceOp.MEAN;
  // @ts-expect-error: whether a handle is wanted is a boolean
  pr.allReduce(array, { asyncOp: "yes" });
  // @ts-expect-error: names are in camelCase
  pr.all_reduce(array);
  // @ts-expect-error: a store is not a group
  pr.getRank(store);
  // @ts-expect-error: no pickle in JavaScript
  pr.broadcastObjectList([1], { codec: "pickle" });
}

export async function results(): Promise<void> {
  // @ts-expect-error: what is reduced is what comes back
  const wrong: Float64Array = await group.allreduce(array);
  // @ts-expect-error: a barrier gives nothing
  (await group.barrier()).length;
  // @ts-expect-error: the result is not there before it is awaited
  group.allreduce(array).length;
  // @ts-expect-error: a new group may be one that this process is not in
  const half: pr.ProcessGroup = await pr.newGroup([0]);
  // @ts-expect-error: a promise is not a number
  const count: number = store.add("n", 1);
  // @ts-expect-error: a BigInt comes for a BigInt
  const sum: number = await store.add("n", 1n);
  // @ts-expect-error: values are bytes
  const text: string = await store.get("k");
  void [wrong, half, count, sum, text];
}

export function construction(): void {
  // @ts-expect-error: it waits: TCPStore.connect
  new pr.TCPStore("127.0.0.1", 0);
  // @ts-expect-error: it waits: ProcessGroup.join
  new pr.ProcessGroup(store, 0, 1);
  // @ts-expect-error: the base class of all stores
  new pr.Store();
  // @ts-expect-error: methods that every store has are missing
  class Incomplete extends pr.Store {
    override set(): void {}
  }
  class Other extends pr.HashStore {
    // @ts-expect-error: stores of the package wait
    override numKeys(): number {
      return 0;
    }
  }
  void [Incomplete, Other];
  // @ts-expect-error: operations give it
  new pr.Work();
  // @ts-expect-error: a prefix is needed
  new pr.PrefixStore(store);
  // @ts-expect-error: an object that lacks methods of a store
  new pr.PrefixStore("own", { set: () => undefined });
  // @ts-expect-error: no such dtype
  pr.alloc("float32", [1]);
  // @ts-expect-error: the memory comes first
  pr.tensor({ dtype: "f32" });
  // @ts-expect-error: it is read only
  group.groupName = "other";
  // @ts-expect-error: handles are strings
  group.reconfigure({ uuid: 1, handles: new Set([1]) });
  // @ts-expect-error: only sends and receives; of other operations the call itself says so
  new pr.P2POp(pr.monitoredBarrier, array, 1);
  // @ts-expect-error: a misspelt option
  new pr.P2POp(pr.isend, array, 1, { tagg: 1 });
  // @ts-expect-error: there are no descriptors in JavaScript
  pr.TCPStore.connect("127.0.0.1", 0, { masterListenFd: 3 });
}

export function errors(error: pr.RankFailedError): void {
  // @ts-expect-error: another kind's field
  error.waitedMs;
  // @ts-expect-error: the kind of this class is another one
  if (error.kind === "WaitTimeout") return;
  // @ts-expect-error: errors are thrown by the package
  new pr.RankFailedError("x");
}

export function meshes(mesh: pr.DeviceMesh): void {
  // @ts-expect-error: it waits: DeviceMesh.create
  new pr.DeviceMesh("cpu", [0]);
  // @ts-expect-error: ranks are numbers
  pr.DeviceMesh.create("cpu", [["0"]]);
  // @ts-expect-error: a dimension is named by a number or a string
  mesh.getGroup(["dp"]);
}
