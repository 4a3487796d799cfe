// Calls that must compile, and the types that they must have. Compiled, never run.

import * as pr from "polyrank";

/** Fails to compile unless the two types are the same one. */
function same<A, B>(..._: [A] extends [B] ? ([B] extends [A] ? [] : [never]) : [never]): void {}

/** An optional value, which `exactOptionalPropertyTypes` tells from an absent one. */
declare const perhaps: number | undefined;
declare const signal: pr.AbortSignalLike;
declare const float16: pr.Float16ArrayLike;

export async function collectives(group: pr.ProcessGroup): Promise<void> {
  const array = new Float32Array(4);
  same<typeof array, Awaited<ReturnType<typeof one>>>();
  async function one() {
    return group.allreduce(array);
  }
  const reduced: Float32Array = await group.allreduce(array, { op: pr.ReduceOp.MAX, timeout: 5 });
  const list: [Float32Array, pr.Tensor] = [reduced, pr.alloc("bf16", [2, 3])];
  same<typeof list, Awaited<ReturnType<typeof several>>>();
  async function several() {
    return group.allreduce(list, { reduceOp: pr.premulSum(0.5), signal });
  }
  await group.allreduce(array, pr.ReduceOp.SUM, { timeout: perhaps });
  await group.allreduce([array], pr.ReduceOp.SUM);
  const limit = { timeout: 5 };
  const prepared: pr.PreparedOperation<Float32Array> = group.prepareAllreduce(array, limit);
  const again: Float32Array = await prepared.start();
  const last: Float32Array | undefined = await prepared.wait();
  await group.allreduce(new BigInt64Array(1));
  await group.allreduce(new DataView(new ArrayBuffer(8)));
  await group.allreduce(float16);
  await group.allreduce(pr.tensor(new Uint16Array(4), { dtype: "bf16", shape: [2, 2] }));
  const sum: bigint | undefined = (await group.allreduce(new BigUint64Array(1)))[0];
  void sum;
  const gathered: Int32Array[] = await group.allgather([new Int32Array(1)], new Int32Array(1));
  const lists: Int8Array[][] = await group.allgather([[new Int8Array(1)]], [new Int8Array(1)]);
  void [gathered, lists];
  await group.reduce([array], { rootRank: 1, reduceOp: pr.ReduceOp.BOR });
  await group.reduce(array, 0, { op: pr.ReduceOp.MIN });
  await group.allToAllSingle(array, array, { outputSplitSizes: [1, 3], inputSplitSizes: [2, 2] });
  await group.gatherSingle(null, array, { rootRank: 2 });
  same<void, Awaited<ReturnType<typeof group.barrier>>>();
  await group.barrier({ timeout: 5, deviceIds: [0] });
  await group.monitoredBarrier({ waitAllRanks: true, signal });
  same<void, Awaited<ReturnType<typeof group.send>>>();
  await group.recv([array], 3, { tag: 2 });
}

export async function positions(group: pr.ProcessGroup): Promise<void> {
  const { SUM } = pr.ReduceOp;
  const array = new Float32Array(4);
  const [list, none] = [[array], pr.NON_GROUP_MEMBER];
  const reduced: Float32Array = await pr.allReduce(array, SUM);
  await pr.allReduce(reduced, SUM, none, { signal });
  await pr.allReduce(array, undefined, group);
  await pr.allReduceCoalesced(list, SUM, group);
  await pr.broadcast(array, 0, group);
  await pr.reduce(array, 0, SUM, group);
  await pr.allGather(list, array, group);
  await pr.allGatherIntoTensor(array, array, group, { asyncOp: true });
  await pr.gather(array, list, 0, group);
  await pr.scatter(array, list, 0, group);
  await pr.reduceScatter(array, list, SUM, group);
  await pr.reduceScatterTensor(array, array, SUM, group);
  await pr.allToAllSingle(array, array, [1, 3], [2, 2], group);
  await pr.allToAll(list, list, group);
  await pr.barrier(group);
  await pr.barrier({ group });
  await pr.monitoredBarrier(group, { timeout: 5 });
  await pr.send(array, 1, group, 3);
  await pr.recv(array, null, group, 3, { groupSrc: 1 });
  await pr.isend(array, 1, undefined, 3);
  await pr.irecv(array, 1, group);
  await pr.scan(array, SUM, group);
  await pr.sendrecv(array, 1, array, 1, group, 2, 3);
  await pr.broadcastObjectList([1], 0, group);
  await pr.allGatherObject([1], 1, group);
  await pr.gatherObject(1, [1], 0, group);
  await pr.scatterObjectList([1], [1], 0, group);
  await pr.sendObjectList([1], 1);
  await pr.recvObjectList([1], 1, group);
  await group.send([array], 1, 3);
  await group.send([array], 1, 3, { signal });
  await group.recvAnysource([array], 3);
  await group.prepareSend(array, 1, 3).wait({ timeout: 5 });
  await pr.destroyProcessGroup({ group });
  await pr.TCPStore.connect("127.0.0.1", 0, 2, true, { timeout: 5 });
  await pr.FileStore.open("path", 2);
  const info: pr.MessageInfo = await group.probe(1, 2);
  const bytes: number = info.bytes;
  const isComplex: boolean = info.dtype === pr.DType.complex64;
  void [bytes, isComplex];
}

export async function functions(): Promise<void> {
  const world: pr.ProcessGroup = await pr.initProcessGroup({
    backend: "tcp",
    initMethod: "env://",
    timeout: perhaps,
    signal,
  });
  const array = new Float64Array(2);
  const reduced: Float64Array = await pr.allReduce(array, { op: pr.ReduceOp.AVG, group: world });
  const places: Float64Array[] | undefined = await pr.gather(reduced, { dst: 1 });
  const filled: Float64Array[] = await pr.gather(reduced, { gatherList: [array], dst: 0 });
  const other: Float64Array[] = await pr.gather(reduced, [array]);
  void [places, filled, other];
  await pr.broadcast(array, { src: 0, groupSrc: undefined });
  await pr.scatter(array, { scatterList: null, src: 1 });
  await pr.allGatherIntoTensor(array, array);
  const handle: pr.Work<Float64Array> = pr.allReduce(array, { asyncOp: true });
  await handle.wait({ timeout: 5000 });
  const awaited: Float64Array = await pr.allReduce(array, { asyncOp: false });
  await world.allreduce([awaited], { asyncOp: true });
  await pr.allGatherSingle(array, array);
  const rank: number = pr.getRank() + pr.getRank(world) + pr.getWorldSize(null);
  void rank;
  const half = await pr.newGroup([0, 1], { timeout: 5000, groupDesc: "half" });
  same<pr.ProcessGroup | pr.NonGroupMember, typeof half>();
  if (half instanceof pr.ProcessGroup) await half.allreduce(array);
  await pr.allReduce(array, { group: half });
  const part: pr.ProcessGroup | null = await world.splitGroup([0]);
  await part?.barrier();
  await pr.destroyProcessGroup(half, { signal });
  await pr.destroyProcessGroup();
  const works = pr.batchIsendIrecv([
    new pr.P2POp(pr.isend, array, 1),
    new pr.P2POp(pr.irecv, array, null, { groupPeer: 2, tag: 7 }),
  ]);
  await Promise.all(works);
  const back: string = pr.withProcessGroup(world, () => pr.currentProcessGroup().groupName);
  void back;
}

export async function stores(): Promise<void> {
  const store = await pr.TCPStore.connect("127.0.0.1", 0, { isMaster: true, timeout: 60_000 });
  const base: pr.Store = store;
  await base.set("key", "text");
  await base.set("key", new Uint8Array(2));
  same<Uint8Array, Awaited<ReturnType<typeof base.get>>>();
  const value: Uint8Array = await store.get("key", { signal });
  const count: number = await store.add("n", 1);
  const exact: bigint = await store.add("n", 1n);
  const either: number | bigint = await store.add("n", count as number | bigint);
  void [value, count, exact, either, store.port];
  await store.wait(["a", "b"], { timeout: 5 });
  await store.queuePop("q", { block: false });
  const view = new pr.PrefixStore("job", new pr.HashStore());
  const under: pr.Store = view.underlyingStore;
  void under;
  const methods: pr.StoreMethods = {
    set: async (key, value) => void (await base.set(key, value)),
    get: (key) => base.get(key),
    add: (key, amount) => base.add(key, amount),
    check: () => true,
    compareSet: (key, _expected, desired) => desired,
    deleteKey: async () => false,
  };
  const ofObject: pr.PrefixStore = new pr.PrefixStore("own", methods);
  // A class of a program has methods that wait or do not, with fewer and wider arguments.
  class Own extends pr.Store {
    readonly table = new Map<string, Uint8Array>();
    override async set(key: string, value: Uint8Array): Promise<void> {
      this.table.set(key, value);
    }
    override async get(key: string): Promise<Uint8Array> {
      return Uint8Array.of(key.length);
    }
    override async add(_key: string, amount: number): Promise<number> {
      return amount;
    }
    override async check(keys: readonly string[]): Promise<boolean> {
      return keys.every((key) => this.table.has(key));
    }
    override async compareSet(_: string, expected: Uint8Array, to: Uint8Array) {
      return expected.length === 0 ? to : expected;
    }
    override async deleteKey(key: string): Promise<boolean> {
      return this.table.delete(key);
    }
    override async wait(keys: string[], options?: { timeout: number }): Promise<void> {
      void [keys, options?.timeout];
    }
  }
  class Immediate extends pr.Store {
    override set(_key: string, _value: Uint8Array): void {}
    override get(key: string): string {
      return key;
    }
    override add(_key: string, amount: number | bigint): number | bigint {
      return amount;
    }
    override check(keys: string[]): boolean {
      return keys.length === 0;
    }
    override compareSet(_key: string, _expected: Uint8Array, desired: Uint8Array): Uint8Array {
      return desired;
    }
    override deleteKey(): boolean {
      return false;
    }
    override numKeys(): number {
      return 0;
    }
    override listKeys(): string[] {
      return [];
    }
    override queuePop(key: string, { block }: { block: boolean }): Uint8Array {
      return Uint8Array.of(key.length, Number(block));
    }
  }
  const own = new Own();
  await own.multiSet(["a"], ["b"]);
  const [first]: Uint8Array[] = await own.multiGet(["a"]);
  const counts: [number, number] = [new Immediate().numKeys(), await own.numKeys()];
  const extended: boolean = own.hasExtendedApi();
  const copy: pr.Store = await own.clone();
  void [first, counts, extended, copy, own.timeout];
  class Implementing implements pr.StoreMethods {
    set(_key: string, _value: Uint8Array): void {}
    get = async (): Promise<string> => "a";
    add = (_key: string, amount: number): number => amount;
    check = (): boolean => true;
    compareSet = (_key: string, _expected: Uint8Array, to: Uint8Array): Uint8Array => to;
    deleteKey = (): boolean => true;
  }
  new pr.PrefixStore("literal", {
    set() {},
    get: async (key) => key.toUpperCase(),
    add: (_key, amount) => amount + 1,
    check: (keys) => keys.length > 0,
    compareSet: (_key, expected, desired) => (expected.length === 0 ? desired : expected),
    deleteKey: () => true,
    queueLen: (key) => key.length,
    barrier: async (_key, worldSize, options) => void [worldSize + 1, options?.timeout],
  });
  class Louder extends pr.TCPStore {
    override set(key: string, value: pr.BytesLike): Promise<void> {
      return super.set(key, value);
    }
  }
  const like: pr.StoreLike[] = [methods, own, new Immediate(), new Implementing(), ofObject];
  like.push(await Louder.connect("localhost", 1), base, new pr.HashStore());
  for (const one of like) if (one instanceof pr.Store) one.setTimeout(5);
  await pr.initProcessGroup({ store: like[0], rank: 0, worldSize: 1 });

  const group = await pr.ProcessGroup.join(await pr.FileStore.open("/tmp/x"), 0, 1);
  same<pr.ProcessGroup, typeof group>();
}

export async function works(work: pr.Work<Float32Array>): Promise<void> {
  const promise: PromiseLike<Float32Array> = work;
  const length: number = await work.then((array) => array.length);
  const waited: Float32Array = await work.wait({ timeout: 5, signal });
  const result: pr.WorkResult = await work.getFutureResult();
  if (result === pr.WorkResult.TIMEOUT) return;
  void [promise, length, waited, work.sequence];
  const [first, second] = await Promise.all([work, work.wait()]);
  same<Float32Array, typeof first>();
  same<Float32Array, typeof second>();
}

export async function objects(): Promise<void> {
  const list: { loss: number }[] = await pr.allGatherObject([], { loss: 1 });
  const named: string[] = await pr.broadcastObjectList(["a"], { src: 0 });
  const gathered = await pr.gatherObject(1, { objectGatherList: [0], dst: 0 });
  same<number[] | null | undefined, typeof gathered>();
  const sender: number = await pr.recvObjectList([null]);
  void [list, named, sender];
}

export function errors(error: unknown): string {
  if (error instanceof pr.RankFailedError) return `${error.rank} ${error.why} ${error.seq}`;
  if (error instanceof pr.CollectiveMismatchError) return `${error.ours} ${error.otherRank}`;
  if (error instanceof pr.StoreTimeoutError) return `${error.keys} ${error.waitedMs}`;
  if (error instanceof pr.DistStoreError) return error.message;
  if (error instanceof pr.PolyrankError) return `${error.kind} ${error.rank ?? ""}`;
  return String(error);
}

export async function devices(group: pr.ProcessGroup, pointer: bigint): Promise<void> {
  const tensor = await pr.CudaTensor.from(new Float32Array(4), { device: "cuda:1", shape: [2, 2] });
  const reduced: pr.CudaTensor<Float32Array> = await group.allreduce(tensor);
  const array: Float32Array = await reduced.copyTo(new Float32Array(4));
  const zeros = await pr.CudaTensor.zeros("bf16", 3, { device: 0 });
  const place = { pointer, dtype: "f32", shape: [4], owner: array } as const;
  await group.allgather([tensor, zeros], pr.CudaTensor.fromPointer(place));
  const all: Float32Array = await tensor.toArray();
  const halves: Uint16Array = await zeros.toArray();
  const of = await pr.CudaTensor.from(new Uint16Array(2), { dtype: "f16" });
  const some: number | bigint | undefined = (await of.toArray())[0];
  void [all, halves, some, tensor.device, tensor.pointer, tensor.stream];
  tensor.free();
}

export function tensors(): void {
  const floats: Float32Array = pr.alloc("f32", [2, 3]).data;
  const flags: Uint8Array = pr.alloc("bool", 4).data;
  const complex: Float64Array = pr.alloc("complex128", [1]).data;
  const view: pr.Tensor<Uint16Array> = pr.tensor(new Uint16Array(4), { dtype: "f16" });
  const dtype: pr.DType = pr.DType.bf16;
  void [floats, flags, complex, view.data.length, dtype, pr.ReduceOp.SUM.value];
}

export async function blocks(): Promise<void> {
  await using group = await pr.ProcessGroup.join(new pr.HashStore(), 0, 1);
  using store = new pr.HashStore();
  void [group, store];
}

export function meetings(): void {
  pr.registerRendezvousHandler("mine", async (url, { rank, worldSize, timeout }) => {
    void [url, timeout];
    return { store: new pr.HashStore(), rank, worldSize };
  });
}

export async function undecided(group: pr.ProcessGroup, op?: pr.ReduceOp): Promise<void> {
  const array = new Float32Array(1);
  await group.allreduce(array, op);
  await group.allreduce(array, op, { timeout: 5 });
  await group.reduce(array, 0, op, { timeout: 5 });
}

export function narrowed(error: pr.RankFailedError | pr.WaitTimeoutError): number {
  return error.kind === "RankFailed" ? error.rank : error.waitedMs;
}

export function known(error: pr.PolyrankError): boolean {
  const kind: pr.ErrorKind | undefined = error.kind;
  return kind === "StoreTimeout";
}

export async function meshes(group: pr.ProcessGroup): Promise<void> {
  const names = { meshDimNames: ["dp", "tp"] };
  const mesh = await pr.initDeviceMesh("cpu", [2, 4], { ...names, backendOverride: { dp: "tcp" } });
  same<typeof mesh, pr.DeviceMesh>();
  await pr.DeviceMesh.create("cpu", [[0, 1], [2, 3]], { initBackend: false });
  await pr.DeviceMesh.create("cpu", pr.tensor(new Int32Array(4), { shape: [2, 2] }), { signal });
  await pr.DeviceMesh.create("cpu", new Uint32Array(4));
  const ranks: pr.NestedRanks = mesh.mesh;
  const groups: pr.ProcessGroup[] = mesh.getAllGroups();
  const coordinate: number[] | null = mesh.getCoordinate();
  const parts: pr.DeviceMesh[] = [mesh.slice("dp"), mesh.slice(["dp", "tp"]), await mesh.flatten()];
  same<[typeof mesh.meshDimNames, typeof mesh.shape], [string[] | null, number[]]>();
  pr.DeviceMesh.fromGroup(groups, "cpu", { mesh: ranks, ...names });
  const wider = pr.extendDeviceMesh(pr.DeviceMesh.fromGroup(group, "cpu", names), group);
  const size: number = mesh.size() + mesh.size(-1) + mesh.size("dp") + mesh.getLocalRank("dp");
  group.reconfigure({ uuid: 1, handles: new Set(["a"]) });
  const current = pr.withDeviceMesh(wider, () => pr.currentDeviceMesh().equals(mesh));
  void [coordinate, parts, size, current];
}

export async function backends(): Promise<void> {
  class Mine implements pr.CustomBackend {
    constructor(readonly rank: number) {}
    async allreduce(tensors: pr.ElementArray[], { reduceOp }: pr.CustomOperation): Promise<void> {
      void [tensors[0]?.byteLength, reduceOp?.name];
    }
    barrier(): void {}
    recvAnysource(): number {
      return this.rank;
    }
  }
  pr.registerBackend("mine", (store, rank, size, timeout) => {
    void [store.timeout, size + timeout];
    return new Mine(rank);
  });
  const more = async ({ groupRank, groupId }: pr.DistributedBackendOptions) => {
    return new Mine(groupRank + groupId.length);
  };
  pr.registerBackend("more", more, { extendedApi: true, devices: ["cpu"] });
  const channels = (context: pr.DistributedBackendOptions, options: unknown) => {
    void [context.groupSize, options];
    return new Mine(1);
  };
  pr.registerBackend("channels", channels, { extendedApi: true });
  void pr.newGroup([0], { backend: "channels", pgOptions: { channels: 4 } });
  const served: pr.DeviceBackend = pr.defaultGroup().getBackend("cpu");
  const kind: pr.BackendType = served.backendType;
  same<typeof pr.BackendType, typeof pr.ProcessGroup.BackendType>();
  void [kind === pr.ProcessGroup.BackendType.CUSTOM, served.name(), served.options.timeout];
}

export async function neighbours(group: pr.ProcessGroup): Promise<void> {
  const grid: pr.Topology = await group.createCart(pr.computeDims(group.size(), 2), [true, false]);
  const [before, after]: (number | null)[] = grid.shift(0);
  const outputs = [new Float32Array(2), new Float32Array(2)];
  const done = await grid.neighborAlltoall(outputs, grid.sources.map(() => new Float32Array(2)));
  same<typeof done, Float32Array<ArrayBuffer>[]>();
  void [before, after, grid.dims?.length, grid.periods?.[0]];
}
