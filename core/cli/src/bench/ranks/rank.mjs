// A rank of `polyrank bench` in Node: joins the group, then does what it is told until the
// benchmark closes the connection. Knows nothing of the other ranks' languages. The values that go
// in and must come out are those of the benchmark's own ranks, see `pattern.rs`.

import { openSync, readFileSync, readSync, writeSync } from "node:fs";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

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

/** The root of the call of a number. */
function rootOf(call) {
  return prepared.case.root ?? call % ranks;
}

/** The root of the next call. */
function nextRoot() {
  calls += 1;
  return rootOf(calls - 1);
}

/**
 * A new array, whose elements begin so many bytes after the beginning of its memory; undefined
 * where JavaScript has no such array.
 */
function arrayOf(dtype, length) {
  const Numbers = ARRAYS[dtype];
  const { memory, offset_bytes: offset } = assignment;
  if (length === 0) return new Numbers(0);
  if (offset === 0) {
    return memory === "polyrank" ? pr.alloc(dtype, [length]).data : new Numbers(length);
  }
  if (offset % Numbers.BYTES_PER_ELEMENT !== 0) return undefined;
  const bytes = length * Numbers.BYTES_PER_ELEMENT + offset;
  const whole = memory === "polyrank" ? pr.alloc("u8", [bytes]).data : new Uint8Array(bytes);
  return new Numbers(whole.buffer, whole.byteOffset + offset, length);
}

function prepare(benchmarkCase) {
  const Numbers = ARRAYS[benchmarkCase.dtype];
  if (Numbers === undefined) {
    return { is: "unsupported", why: `JavaScript has no arrays of ${benchmarkCase.dtype}` };
  }
  const { operation, form } = benchmarkCase;
  if (assignment.call_style === "prepared" && (operation !== "allreduce" || form !== "in_place")) {
    return { is: "unsupported", why: "only an allreduce in place can be prepared" };
  }
  if (benchmarkCase.operation === "put") {
    return { is: "unsupported", why: "puts are measured in Rust and Python" };
  }
  const copies = [];
  for (let copy = 0; copy < benchmarkCase.copies; copy += 1) {
    const [input, output] = lengths(benchmarkCase).map((length) =>
      arrayOf(benchmarkCase.dtype, length),
    );
    if (input === undefined || output === undefined) {
      const why = `JavaScript has no ${benchmarkCase.dtype} at an offset of`;
      return { is: "unsupported", why: `${why} ${assignment.offset_bytes} B` };
    }
    copies.push({ input, output, call: operationOf(benchmarkCase, input, output) });
  }
  prepared = { case: benchmarkCase, copies, ...copies[0] };
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

/** What every element of the output must be if all ranks contribute ones; null where it is not. */
function expectedOfOnes(root) {
  const { operation, reduction } = prepared.case;
  if (expected(root, 0) === null) return null;
  if (!REDUCES.includes(operation)) return 1;
  return { sum: ranks, bxor: ranks % 2 }[reduction] ?? 1;
}

/** The array of a copy that a call reads here; null if it reads nothing. */
function sourceOf({ input, output }, root) {
  const { operation, form } = prepared.case;
  const isOfRoot = operation === "broadcast" || operation === "scatter";
  if (operation === "barrier" || (isOfRoot && root !== rank)) return null;
  return form === "in_place" ? output : input;
}

/**
 * Bursts of calls whose inputs are written before: as the benchmark's own ranks make them, see
 * `burst.rs`.
 */
async function bursts({ iterations, lead_ns }) {
  const { copies, output } = prepared;
  const isBig = output instanceof BigInt64Array || output instanceof BigUint64Array;
  const element = isBig ? BigInt : Number;
  const times = { burst_ns: [], late_ns: [], write_ns: 0, wrong: 0 };
  const leadNs = BigInt(lead_ns);
  let first = 0;
  for (let burst = 0; burst < iterations; burst += 1) {
    first = burst * copies.length;
    const begin = process.hrtime.bigint();
    // Zeros and ones in turn, so that a result of the burst before is seen; ones at last.
    const ones = element((iterations - burst) % 2);
    copies.forEach((copy, at) => sourceOf(copy, rootOf(first + at))?.fill(ones));
    times.write_ns += Number(process.hrtime.bigint() - begin);
    const { agreedNs, begunNs } = waitForStart(leadNs);
    for (let at = 0; at < copies.length; at += 1) await copies[at].call(rootOf(first + at));
    times.burst_ns.push(Number(process.hrtime.bigint() - agreedNs));
    times.late_ns.push(Number(begunNs - agreedNs));
  }
  copies.forEach((copy, at) => {
    const wanted = expectedOfOnes(rootOf(first + at));
    if (wanted === null) return;
    const one = element(wanted);
    for (const found of copy.output) times.wrong += Number(found !== one);
  });
  await pr.barrier();
  return { is: "bursts", ...times };
}

/** Starts without calls. */
function empty({ iterations, lead_ns }) {
  const times = { burst_ns: [], late_ns: [], write_ns: 0, wrong: 0 };
  for (let at = 0; at < iterations; at += 1) {
    const { agreedNs, begunNs } = waitForStart(BigInt(lead_ns));
    times.burst_ns.push(Number(process.hrtime.bigint() - agreedNs));
    times.late_ns.push(Number(begunNs - agreedNs));
  }
  return { is: "empty", ...times };
}

/**
 * The moment at which all ranks make their next call, agreed through a file: as the benchmark's own
 * ranks do it, see `common_start.rs`.
 */
const RECORD_BYTES = 16;
const ALL_BITS = (1n << 64n) - 1n;
const records = Buffer.alloc(ranks * RECORD_BYTES);
const record = Buffer.alloc(RECORD_BYTES);
const cell = new Int32Array(new SharedArrayBuffer(4));
const starts = { file: -1, round: 0, lastNs: 0n };

/** Says that this rank is ready, and returns when the agreed moment has come. */
function waitForStart(leadNs) {
  const first = (starts.round % 2) * records.length;
  const now = process.hrtime.bigint();
  const readyNs = now > starts.lastNs ? now : starts.lastNs + 1n;
  record.writeBigUInt64LE(readyNs, 0);
  record.writeBigUInt64LE(readyNs ^ ALL_BITS, 8);
  writeSync(starts.file, record, 0, RECORD_BYTES, first + rank * RECORD_BYTES);
  const agreedNs = latestReady(first, readyNs) + leadNs;
  starts.round += 1;
  starts.lastNs = agreedNs;
  let begunNs = process.hrtime.bigint();
  while (begunNs < agreedNs) {
    makeRoom();
    begunNs = process.hrtime.bigint();
  }
  return { agreedNs, begunNs };
}

/** The latest of the ranks' times of this round. */
function latestReady(first, readyNs) {
  const limitNs = BigInt(assignment.timeout_s) * 1_000_000_000n;
  for (;;) {
    readSync(starts.file, records, 0, records.length, first);
    let latestNs = 0n;
    for (let at = 0; at < records.length && latestNs !== null; at += RECORD_BYTES) {
      const timeNs = records.readBigUInt64LE(at);
      // A read may see half of a write; a record of an older round is no later than its start.
      const isWhole = records.readBigUInt64LE(at + 8) === (timeNs ^ ALL_BITS);
      if (!isWhole || timeNs <= starts.lastNs) latestNs = null;
      else if (timeNs > latestNs) latestNs = timeNs;
    }
    if (latestNs !== null) return latestNs;
    if (process.hrtime.bigint() - readyNs > limitNs) {
      throw new Error("a rank was not ready for the next call in time");
    }
    makeRoom();
  }
}

/** Lets another rank have the core, where there are more ranks than cores. */
function makeRoom() {
  // JavaScript cannot yield but by waiting for as short as the system can.
  if (assignment.yields) Atomics.wait(cell, 0, 0, 0.001);
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

/** Some arrays are known to be garbage only when others are gone. */
const COLLECTIONS = 3;

/** Lets the buffers go, and the collector take them; the memory that there is beside them. */
async function memory() {
  prepared = undefined;
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  for (let time = 0; time < COLLECTIONS; time += 1) {
    collect();
    // What collected arrays had is given back between turns of the event loop.
    await new Promise((resolve) => setTimeout(resolve));
  }
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
  if (assignment.starts !== null) starts.file = openSync(assignment.starts, "r+");
  const versions = { polyrank: pr.version ?? "", node: process.versions.node };
  say(
    assignment.joins_on_command
      ? { is: "joined", ...(await firstAllreduce()), versions }
      : { is: "ready", versions },
  );
  const commands = { prepare, check, run, each, bursts, empty, memory };
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
