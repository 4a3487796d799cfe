// The conformance cases in JavaScript: one rank of a group, in Node or in a browser alike.
//
// README.md says how a case is read. Knows nothing of how a collective is run.

import { OnDevice } from "./device.mjs";
import { lists } from "./lists.mjs";

const UNTOUCHED = 0xa5;
// The arrays whose type is the element type; the others are made by `pr.tensor`.
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
// The arrays in which elements of the other types lie.
const STORAGE = {
  bool: Uint8Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  complex64: Float32Array,
  complex128: Float64Array,
};

/** Runs the cases of this world; the exit code is 0 if all are as they should be. */
export async function main(pr, here) {
  const file = JSON.parse(await here.load("tests/cases/cases.json"));
  await pr.initProcessGroup(here.init);
  const group = pr.defaultGroup();
  const [rank, world] = [pr.getRank(), pr.getWorldSize()];
  const device = OnDevice.named(pr, here.device, rank);
  const all = file.pairwise[world].map((row) => new Case(file, row, rank, world));
  const rows = all.filter((call) => device?.takes(call) ?? true);
  let failed = 0;
  for (const call of rows) {
    const difference = await run(pr, group, call, device);
    if (difference) {
      failed += 1;
      here.say(`FAILED ${call.name}: rank ${rank}, ${difference}`);
    }
  }
  const passed = rows.length - failed;
  for (const difference of device === null ? await lists(pr, group) : []) {
    failed += 1;
    here.say(`FAILED ${difference} (rank ${rank})`);
  }
  here.say(`${here.language} rank ${rank} of ${world}: ${passed} passed, ${failed} failed`);
  await pr.destroyProcessGroup();
  return failed === 0 ? 0 : 1;
}

/** What differs after the call, if anything does. */
async function run(pr, group, call, device) {
  const operations = Array.from({ length: call.form.coalesced ? 2 : 1 }, () => call.slots(pr));
  const owner = call.form.place === "ProcessGroup" ? group : pr;
  await device?.put(operations);
  const refused = device?.refuses(call) ?? false;
  try {
    await owner[camelCase(call.form.method)](...callArguments(pr, call, operations));
  } catch (error) {
    if (refused && error.kind === "Unsupported") return undefined;
    error.message = `${call.name}: ${error.message}`;
    throw error;
  }
  if (refused) return "was not refused";
  await device?.get(operations);
  for (const slots of operations) {
    for (const [side, those] of Object.entries(slots)) {
      const differences = those.map((slot) => slot.difference());
      const at = differences.findIndex(Boolean);
      if (at >= 0) {
        return `${side} ${at}: ${differences[at]}`;
      }
    }
  }
  return undefined;
}

/** A tensor, and the bytes that its memory must hold afterwards. */
class Slot {
  constructor(pr, call, before, after) {
    this.width = call.width;
    [this.memory, this.tensor] = place(pr, call, before);
    [this.expected] = place(undefined, call, after);
  }

  difference() {
    const at = this.memory.findIndex((byte, index) => byte !== this.expected[index]);
    if (at < 0) {
      return undefined;
    }
    const start = at - (at % this.width);
    const [got, expected] = [this.memory, this.expected].map((bytes) =>
      hexadecimal(bytes.subarray(start, start + this.width)),
    );
    return `byte ${at} is of ${got}, expected ${expected}`;
  }
}

/** Memory and, if asked for, a tensor in it that has these elements. */
function place(pr, call, data) {
  const step = call.strided ? 2 : 1;
  const memory = new Uint8Array(data.length * step).fill(UNTOUCHED);
  const elements = data.length / call.width;
  for (let element = 0; step === 2 && element < elements; element += 1) {
    const start = element * call.width;
    memory.set(data.subarray(start, start + call.width), start * step);
  }
  if (step === 1) {
    memory.set(data);
  }
  return [memory, pr && tensorIn(pr, call, memory, elements, step)];
}

function tensorIn(pr, call, memory, elements, step) {
  const { dtype } = call;
  const array = new (ARRAYS[dtype] ?? STORAGE[dtype])(memory.buffer);
  if (step === 1 && dtype in ARRAYS) {
    return array;
  }
  return pr.tensor(array, { dtype, shape: [elements], strides: [step] });
}

/** One call, as this rank sees it. */
class Case {
  constructor(file, row, rank, world) {
    const [form, dtype, op, root, elements, strided, uneven] = row;
    Object.assign(this, { file, rank, world, op, root, elements, strided, uneven });
    this.form = file.forms[form];
    this.facts = file.collectives[this.form.collective];
    this.dtype = dtype ?? "u8";
    this.width = file.dtypes[this.dtype].bytes;
    const words = [this.form.id, this.dtype, op, `root ${root}`, `${elements} elements`];
    words.push(strided ? "strided" : "", uneven ? "uneven" : "");
    this.name = words.filter(Boolean).join(", ");
    const reduced = { scan: rank + 1, exscan: rank }[this.form.collective];
    if (reduced !== undefined) {
      this.reduction = [1, file.prefixes[op][this.dtype][reduced]];
    } else {
      this.reduction = this.facts.reduces ? file.reductions[op][this.dtype][world] : [1, ""];
    }
  }

  /** What this rank puts in, block by block. */
  sends() {
    const { input, output } = this.facts;
    if (output === "None" || (input === "AllAtRoot" && this.rank !== this.root)) {
      return [];
    }
    if (!input.startsWith("All")) {
      return [this.data(this.rank, 0, this.length(this.rank, this.rank))];
    }
    return this.peers((to) => this.data(this.rank, to, this.length(this.rank, to)));
  }

  /** What this rank must get, block by block. */
  receives() {
    const { rank, root } = this;
    const { input, output, reduces } = this.facts;
    const block = input.startsWith("All") ? rank : 0;
    if (output === "None" || (output.endsWith("AtRoot") && rank !== root)) {
      return [];
    }
    if (output.startsWith("All")) {
      return this.peers((from) => this.data(from, block, this.length(from, rank)));
    }
    if (reduces && this.reduction[1] === undefined) {
      return this.sends();
    }
    if (reduces) {
      return [this.cut(this.reduction[1], 0, block, this.length(rank, rank))];
    }
    return [this.data(root, block, this.length(root, rank))];
  }

  peers(each) {
    return Array.from({ length: this.world }, (_, peer) => each(peer));
  }

  /** Elements of what a rank has for another. */
  length(from, to) {
    const { sizes, output } = this.facts;
    let more = output.startsWith("All") ? from : to;
    if (sizes === "Equal") {
      more = 0;
    } else if (sizes === "Pairwise") {
      more = from + 2 * to;
    }
    return this.elements + (this.uneven ? more % 3 : 0);
  }

  /** The input of a rank that is its block `block`. */
  data(rank, block, elements) {
    const pattern = this.file.dtypes[this.dtype].inputs[this.reduction[0]];
    return this.cut(pattern, rank * this.file.rank_step, block, elements);
  }

  /** So many elements of a periodic pattern. */
  cut(pattern, phase, block, elements) {
    const { block_step: step, period } = this.file;
    const one = fromHexadecimal(pattern);
    const start = ((phase + block * step) % period) * this.width;
    const bytes = new Uint8Array(elements * this.width);
    for (let at = 0, from = start; at < bytes.length; from = 0) {
      const piece = one.subarray(from, from + bytes.length - at);
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }

  /** The tensors of one operation by role, as the form joins them. */
  slots(pr) {
    let [sends, receives] = [this.sends(), this.receives()];
    const said = new Set(this.form.parameters.map((parameter) => parameter.role));
    if (said.has("InOut")) {
      return { InOut: sends.map((data, at) => new Slot(pr, this, data, receives[at] ?? data)) };
    }
    if (said.has("FlatIn") && sends.length > 0) {
      sends = [joined(sends)];
    }
    if (said.has("FlatOut") && receives.length > 0) {
      receives = [joined(receives)];
    }
    const blank = (data) => new Uint8Array(data.length).fill(UNTOUCHED);
    return {
      In: sends.map((data) => new Slot(pr, this, data, data)),
      Out: receives.map((data) => new Slot(pr, this, blank(data), data)),
    };
  }
}

/** The arguments of the call; those that may be left out are in one object at the end. */
function callArguments(pr, call, operations) {
  const [positional, options] = [[], {}];
  for (const parameter of call.form.parameters) {
    if (parameter.role === "Options") {
      for (const [name, role] of Object.entries(parameter.fields)) {
        options[camelCase(name)] = plain(pr, call, role);
      }
    } else if (parameter.optional) {
      options[camelCase(parameter.name)] = argument(pr, call, operations, parameter);
    } else {
      positional.push(argument(pr, call, operations, parameter));
    }
  }
  return Object.keys(options).length > 0 ? [...positional, options] : positional;
}

/** The value of one parameter. */
function argument(pr, call, operations, parameter) {
  const { role } = parameter;
  const side = role.replace("Flat", "");
  if (!["In", "Out", "InOut"].includes(side)) {
    return plain(pr, call, role);
  }
  const fact = side === "In" ? call.facts.input : call.facts.output;
  const isList = fact.startsWith("All") && side === role;
  const values = operations.map((slots) => nested(slots[side] ?? [], parameter, isList));
  if (!call.form.coalesced) return values[0];
  // As in c10d, several lists of outputs are one for each rank.
  return isList ? values[0].map((_, rank) => values.map((list) => list[rank])) : values;
}

/** The tensors as deep in lists as the parameter has them. */
function nested(slots, parameter, isList) {
  const tensors = slots.map((slot) => slot.tensor);
  const value = isList ? tensors : (tensors[0] ?? null);
  if (parameter.depth > (isList ? 1 : 0)) {
    return tensors.length > 0 ? [value] : [];
  }
  return value;
}

/** The value of a parameter or field that is not a tensor. */
function plain(pr, call, role) {
  if (role === "Op") {
    return call.op === "PREMUL_SUM" ? pr.premulSum(call.file.factor) : pr.ReduceOp[call.op];
  }
  if (role === "Root" || role === "GlobalRoot") {
    return call.root;
  }
  if (!call.uneven) {
    return [];
  }
  const { rank } = call;
  const isOutput = role === "OutSplits";
  return call.peers((peer) => (isOutput ? call.length(peer, rank) : call.length(rank, peer)));
}

function camelCase(name) {
  return name.replace(/(?<=.)_([a-z])/g, (_, letter) => letter.toUpperCase());
}

function joined(pieces) {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function fromHexadecimal(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

function hexadecimal(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
