// A rank of `polyrank bench` in Node: joins the group, then does what it is told until the
// benchmark closes the connection. Knows nothing of the other ranks' languages. The values that go
// in and must come out are those of the benchmark's own ranks, see `pattern.rs`.

import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { createInterface } from "node:readline";

const REDUCES = ["allreduce", "reduce", "reduce_scatter"];
const ARRAYS = {
  u8: Uint8Array,
  i8: Int8Array,
  u16: Uint16Array,
  i16: Int16Array,
  u32: Uint32Array,
  i32: Int32Array,
  u64: BigUint64Array,
  i64: BigInt64Array,
  f32: Float32Array,
  f64: Float64Array,
};

const rank = Number(process.argv.at(-1));
const assignment = JSON.parse(process.env.POLYRANK_BENCH);
const { ranks } = assignment;
// The package that is installed here, which may have brought this program along.
const pr = await import(assignment.library);

/** What `of` contributes as element `index` of its input. */
function value(of, index) {
  const { operation, reduction } = prepared.case;
  const mixed = index * 31 + of * 17 + Math.floor(index / 97);
  if (!REDUCES.includes(operation)) return mixed % 113;
  if (reduction === "sum") {
    return mixed % Math.min(Math.max(Math.floor(127 / ranks), 2), 113);
  }
  if (reduction === "product") {
    return 1 + Number((index + of) % Math.max(Math.floor(ranks / 6) + 1, 7) === 0);
  }
  if (reduction === "avg") {
    return (index % Math.max(Math.floor(100 / ranks), 1)) + (index % ranks === of ? ranks : 0);
  }
  return mixed % 113;
}

const FOLDS = {
  sum: (a, b) => a + b,
  avg: (a, b) => a + b,
  product: (a, b) => a * b,
  min: Math.min,
  max: Math.max,
  band: (a, b) => a & b,
  bor: (a, b) => a | b,
  bxor: (a, b) => a ^ b,
};

/** What all ranks' elements at `index` reduce to. */
function reduced(index) {
  const { reduction } = prepared.case;
  let result = value(0, index);
  for (let other = 1; other < ranks; other += 1) {
    result = FOLDS[reduction](result, value(other, index));
  }
  return reduction === "avg" ? result / ranks : result;
}

/** What this rank must find as element `index` of its output; null where that says nothing. */
function expected(root, index) {
  const { operation } = prepared.case;
  const count = Math.max(prepared.case.count, 1);
  const [block, within] = [Math.floor(index / count), index % count];
  const own = rank * count + within;
  switch (operation) {
    case "allreduce":
      return reduced(index);
    case "reduce":
      return rank === root ? reduced(index) : null;
    case "broadcast":
      return value(root, index);
    case "allgather":
      return value(block, within);
    case "gather":
      return rank === root ? value(block, within) : null;
    case "scatter":
      return value(root, own);
    case "reduce_scatter":
      return reduced(own);
    case "alltoall":
      return value(block, own);
    case "sendrecv":
      return value((rank + ranks - 1) % ranks, index);
    case "pingpong":
      return rank < 2 ? value(1 - rank, index) : null;
    default:
      return null;
  }
}

/** Elements of the input and of the output. */
function lengths({ operation, form, count }) {
  const whole = count * ranks;
  return {
    allreduce: [form === "out_of_place" ? count : 0, count],
    reduce: [0, count],
    broadcast: [0, count],
    allgather: [count, whole],
    gather: [count, whole],
    scatter: [whole, count],
    reduce_scatter: [whole, count],
    alltoall: [whole, whole],
    barrier: [0, 0],
    sendrecv: [count, count],
    pingpong: [count, count],
  }[operation];
}

/** The operation as a function of the root. */
function operationOf({ operation, form, reduction, count }, input, output) {
  const op = pr.ReduceOp[reduction.toUpperCase()];
  const parts = (array) =>
    Array.from({ length: ranks }, (_, at) => array.subarray(at * count, (at + 1) * count));
  if (assignment.call_style === "prepared") {
    const prepared = pr.defaultGroup().prepareAllreduce(output, { op });
    return () => prepared.run();
  }
  const calls = {
    allreduce: () => {
      if (form === "out_of_place") output.set(input);
      return reduction === "sum" ? pr.allReduce(output) : pr.allReduce(output, { op });
    },
    reduce: (root) => pr.reduce(output, { dst: root, op }),
    broadcast: (root) => pr.broadcast(output, { src: root }),
    allgather: () => pr.allGatherIntoTensor(output, input),
    gather: (root) =>
      root === rank
        ? pr.gather(input, parts(output), { dst: root })
        : pr.gather(input, { dst: root }),
    scatter: (root) =>
      root === rank
        ? pr.scatter(output, parts(input), { src: root })
        : pr.scatter(output, { src: root }),
    reduce_scatter: () => pr.reduceScatterTensor(output, input, { op }),
    alltoall: () => pr.allToAllSingle(output, input),
    barrier: () => pr.barrier(),
    sendrecv: () =>
      Promise.all([
        pr.send(input, { dst: (rank + 1) % ranks }),
        pr.recv(output, { src: (rank + ranks - 1) % ranks }),
      ]),
    pingpong: async () => {
      if (rank === 0) await pr.send(input, { dst: 1 });
      if (rank < 2) await pr.recv(output, { src: 1 - rank });
      if (rank === 1) await pr.send(input, { dst: 0 });
    },
  };
  return calls[operation];
}

let prepared;
let calls = 0;

/** The root of the next call. */
function nextRoot() {
  const { root } = prepared.case;
  calls += 1;
  return root ?? (calls - 1) % ranks;
}

function prepare(benchmarkCase) {
  const Numbers = ARRAYS[benchmarkCase.dtype];
  if (Numbers === undefined) {
    return { is: "unsupported", why: `JavaScript has no arrays of ${benchmarkCase.dtype}` };
  }
  const array = (length) =>
    assignment.memory === "polyrank" && length > 0
      ? pr.alloc(benchmarkCase.dtype, [length]).data
      : new Numbers(length);
  const [input, output] = lengths(benchmarkCase).map(array);
  const { operation, form } = benchmarkCase;
  if (assignment.call_style === "prepared" && (operation !== "allreduce" || form !== "in_place")) {
    return { is: "unsupported", why: "only an allreduce in place can be prepared" };
  }
  const call = operationOf(benchmarkCase, input, output);
  prepared = { case: benchmarkCase, input, output, call };
  calls = 0;
  return { is: "prepared" };
}

/** Calls once with known contents; counts the elements of the result that are wrong. */
async function check() {
  const { input, output, call } = prepared;
  const isBig = input instanceof BigInt64Array || input instanceof BigUint64Array;
  const element = isBig ? BigInt : Number;
  const isInput = prepared.case.form === "in_place";
  for (let at = 0; at < input.length; at += 1) input[at] = element(value(rank, at));
  for (let at = 0; at < output.length; at += 1) {
    output[at] = element(isInput ? value(rank, at) : 120);
  }
  const root = nextRoot();
  await call(root);
  let wrong = 0;
  for (let at = 0; at < output.length; at += 1) {
    const wanted = expected(root, at);
    if (wanted !== null && Number(output[at]) !== wanted) wrong += 1;
  }
  // Sums of nothing stay what they are, however often they are taken.
  input.fill(element(0));
  output.fill(element(0));
  await pr.barrier();
  return { is: "checked", wrong };
}

/** Returns when every rank is about to start. */
async function meet() {
  // The first brings everybody here, the second lets them go together.
  await pr.barrier();
  await pr.barrier();
}

async function run({ iterations }) {
  await meet();
  const cpu = process.cpuUsage();
  const start = performance.now();
  for (let at = 0; at < iterations; at += 1) await prepared.call(nextRoot());
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  await pr.barrier();
  return { is: "ran", seconds, cpu_seconds: (user + system) / 1e6 };
}

async function each({ iterations }) {
  const seconds = new Float64Array(iterations);
  await meet();
  let last = performance.now();
  for (let at = 0; at < iterations; at += 1) {
    await prepared.call(nextRoot());
    const now = performance.now();
    seconds[at] = (now - last) / 1000;
    last = now;
  }
  await pr.barrier();
  return { is: "each", seconds: Array.from(seconds) };
}

/**
 * The memory of this process that is not a file's: its own pages, and of shared ones its part. Null
 * where the system does not say.
 */
function memoryBytes() {
  try {
    const text = readFileSync("/proc/self/smaps_rollup", "ascii");
    const kib = (name) => Number(new RegExp(`^${name}: *(\\d+) kB`, "m").exec(text)[1]);
    return (kib("Pss_Anon") + kib("Pss_Shmem")) * 1024;
  } catch {
    return null;
  }
}

const alone = memoryBytes();

/** Lets the buffers go; the memory that there is beside them. */
function memory() {
  prepared = undefined;
  const now = memoryBytes();
  return { is: "memory", bytes: now === null ? null : Math.max(now - alone, 0) };
}

/** Seconds of the system's monotonic clock, which all processes of a host share. */
function monotonic() {
  return Number(process.hrtime.bigint()) / 1e9;
}

/** Reduces once: when the rank was a member, and when that was over. */
async function firstAllreduce() {
  const member_s = monotonic();
  const array = new Float32Array([1]);
  await pr.allReduce(array);
  const reduced_s = monotonic();
  if (array[0] !== ranks) {
    throw new Error(`the first allreduce is wrong: ${array[0]} of ${ranks} ranks`);
  }
  return { member_s, reduced_s };
}

async function serve(say, source) {
  const lines = source[Symbol.asyncIterator]();
  say({ is: "hello", rank, token: assignment.token });
  if (assignment.joins_on_command && (await lines.next()).done) return;
  await pr.initProcessGroup({
    initMethod: `tcp://127.0.0.1:${assignment.port}`,
    rank,
    worldSize: ranks,
    timeout: assignment.timeout_s * 1000,
  });
  const versions = { polyrank: pr.version ?? "", node: process.versions.node };
  say(
    assignment.joins_on_command
      ? { is: "joined", ...(await firstAllreduce()), versions }
      : { is: "ready", versions },
  );
  const commands = { prepare, check, run, each, memory };
  for (let line = await lines.next(); !line.done; line = await lines.next()) {
    const command = JSON.parse(line.value);
    say(await commands[command.do](command));
  }
  await pr.destroyProcessGroup();
}

const [host, port] = assignment.control.split(":");
const stream = connect({ host, port: Number(port), noDelay: true });
const say = (answer) => stream.write(`${JSON.stringify(answer)}\n`);
try {
  await serve(say, createInterface({ input: stream }));
  stream.end();
} catch (error) {
  say({ is: "failed", why: `${error.name}: ${error.message}` });
  stream.end();
  throw error;
}
