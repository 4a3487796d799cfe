// The module's operations as objects, and short calls: their arrays are copied to the module's
// memory and from there, which is cheaper than to hand them over. Knows nothing of what operations
// are for.

import { NativeWork, installWorks } from "./runtime/native_works.js";
import { codeOf } from "./runtime/tensors.js";
import { byteLengthOf, bytesOf } from "./runtime/views.js";

/** Arrays beyond this go the long way, which uses memory of polyrank in place. */
const MAX_BYTES = 16 * 1024;
/** Stands for the element type where there are no elements. */
const NO_TYPE = -1;

/** What short calls give, as the module has it. */
const [DECLINED, DONE, WORKS] = [-1, 0, 3];

/** What `interface Native` has for operations, of the module and its memory. */
export function operationsOf(module, memory) {
  let last = 0;
  let names = 0;
  let bytes = new Uint8Array(memory.buffer);

  const made = (work, method, isNew) => {
    last += 1;
    // A name that the caller gives is a part of it.
    return new NativeWork(work, last, { method: names === 0 ? method : null, isNew });
  };

  /** Where the arrays of a call are copied to; -1: it is none that is short. */
  const place = (first, second, maxCopied) => {
    const [one, other] = [byteLengthOf(first), second === null ? 0 : byteLengthOf(second)];
    // An array may have been given away, of which the long way tells.
    if (one === 0 || Math.max(one, other) > MAX_BYTES || one + other > maxCopied) return -1;
    if (second !== null && (other === 0 || !areApart(first, second))) return -1;
    const at = module.shortArrays(one + other);
    // Memory that has grown lies in another buffer.
    if (bytes.length === 0) bytes = new Uint8Array(memory.buffer);
    bytes.set(bytesOf(first), at);
    if (second !== null) bytes.set(bytesOf(second), at + one);
    return at;
  };

  const settle = (outcome, at, method, first, second) => {
    if (outcome === DECLINED) return null;
    if (outcome >= WORKS) return made(outcome - WORKS, method, true);
    const sequence = module.shortSequence();
    if (outcome === DONE) return -1 - sequence;
    if (bytes.length === 0) bytes = new Uint8Array(memory.buffer);
    const isFirst = outcome === DONE + 1;
    const written = bytesOf(isFirst ? first : second);
    const from = isFirst ? at : at + byteLengthOf(first);
    written.set(bytes.subarray(from, from + written.length));
    return sequence;
  };

  installWorks({
    ...module,
    // Its lists of numbers are typed arrays.
    workOutputs: (work) => Array.from(module.workOutputs(work)),
    workInputs: (work) => Array.from(module.workInputs(work)),
  });
  return {
    nameCalls(name) {
      names += name === null ? -1 : 1;
      module.nameCalls(name ?? undefined);
    },
    prepare(group, method, args, keywords, tensors, infos, maxEagerBytes) {
      const { prepare } = module;
      const work = prepare(group, method, args, keywords, tensors, infos, maxEagerBytes);
      return made(work, method, false);
    },
    shortMethod: module.shortMethod,
    shortIsReceive: module.shortIsReceive,
    shortTimeoutMs: module.shortTimeoutMs,
    shortGroupName: module.shortGroupName,
    runShort(group, method, first, second, operator, rank, timeoutMs, maxCopied) {
      const at = place(first, second, maxCopied);
      if (at === -1) return null;
      const [one, other] = [byteLengthOf(first), second === null ? 0 : byteLengthOf(second)];
      const { shortRun } = module;
      const dtype = codeOf(first);
      const outcome = shortRun(group, method, dtype, one, other, operator, rank, timeoutMs);
      return settle(outcome, at, method, first, second);
    },
    runPrepared(prepared, first, second, maxCopied) {
      if (first === undefined) return settle(prepared.run(NO_TYPE, 0, 0), 0, null, null, null);
      const at = place(first, second, maxCopied);
      if (at === -1) return null;
      const [one, other] = [byteLengthOf(first), second === null ? 0 : byteLengthOf(second)];
      return settle(prepared.run(codeOf(first), one, other), at, null, first, second);
    },
  };
}

/** Whether two arrays have elements of one type and share no memory. */
function areApart(first, second) {
  return codeOf(first) === codeOf(second) && bytesOf(first).buffer !== bytesOf(second).buffer;
}
