// The module's operations as objects, and short calls: their arrays are copied to the module's
// memory and from there, which is cheaper than to hand them over. Knows nothing of what operations
// are for.

import { commName } from "./runtime/comm_name.js";
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
  const works = new Works(module, memory);
  installWorks({
    ...module,
    // Its lists of numbers are typed arrays.
    workOutputs: (work) => Array.from(module.workOutputs(work)),
    workInputs: (work) => Array.from(module.workInputs(work)),
  });
  const { shortMethod, shortIsReceive, shortTimeoutMs, shortGroupName } = module;
  return {
    nameCalls: (name) => module.nameCalls(name ?? undefined),
    prepare(group, method, args, keywords, tensors, infos, maxEagerBytes) {
      const { prepare } = module;
      const work = prepare(group, method, args, keywords, tensors, infos, maxEagerBytes);
      return works.made(work, method, false);
    },
    shortMethod,
    shortIsReceive,
    shortTimeoutMs,
    shortGroupName,
    runShort(group, method, first, second, operator, rank, timeoutMs, maxCopied) {
      return works.run(method, first, second, maxCopied, (dtype, one, other) => {
        return module.shortRun(group, method, dtype, one, other, operator, rank, timeoutMs);
      });
    },
    runPrepared(prepared, first, second, maxCopied) {
      if (first === undefined) return works.settle(prepared.run(NO_TYPE, 0, 0), 0, null, []);
      return works.run(null, first, second, maxCopied, (dtype, one, other) => {
        return prepared.run(dtype, one, other);
      });
    },
  };
}

class Works {
  #module;
  #memory;
  /** All bytes of the memory; of none, when that has grown, which then lies elsewhere. */
  #bytes;
  /** How many numbers were given. */
  #last = 0;

  constructor(module, memory) {
    this.#module = module;
    this.#memory = memory;
    this.#bytes = new Uint8Array(memory.buffer);
  }

  made(work, method, isNew) {
    this.#last += 1;
    // A name that the caller gives is a part of it.
    const named = commName() === null ? method : null;
    return new NativeWork(work, this.#last, { method: named, isNew });
  }

  /** What `call` does with arrays that were copied to the module, given their type and lengths;
   * null if they are none of a short call. */
  run(method, first, second, maxCopied, call) {
    const [one, other] = [byteLengthOf(first), second === null ? 0 : byteLengthOf(second)];
    // An array may have been given away, of which the long way tells.
    if (one === 0 || Math.max(one, other) > MAX_BYTES || one + other > maxCopied) return null;
    if (second !== null && (other === 0 || !areApart(first, second))) return null;
    const at = this.#module.shortArrays(one + other);
    const bytes = this.#now();
    bytes.set(bytesOf(first), at);
    if (second !== null) bytes.set(bytesOf(second), at + one);
    return this.settle(call(codeOf(first), one, other), at, method, [first, second]);
  }

  /** What a short call gives whose arrays were copied to `at`; its result is copied to them. */
  settle(outcome, at, method, [first, second]) {
    if (outcome === DECLINED) return null;
    if (outcome >= WORKS) return this.made(outcome - WORKS, method, true);
    const sequence = this.#module.shortSequence();
    if (outcome === DONE) return -1 - sequence;
    const isFirst = outcome === DONE + 1;
    const written = bytesOf(isFirst ? first : second);
    const from = isFirst ? at : at + byteLengthOf(first);
    written.set(this.#now().subarray(from, from + written.length));
    return sequence;
  }

  #now() {
    if (this.#bytes.length === 0) this.#bytes = new Uint8Array(this.#memory.buffer);
    return this.#bytes;
  }
}

/** Whether two arrays have elements of one type and share no memory. */
function areApart(first, second) {
  if (codeOf(first) !== codeOf(second)) return false;
  const [one, other] = [bytesOf(first), bytesOf(second)];
  const [end, otherEnd] = [one.byteOffset + one.length, other.byteOffset + other.length];
  return one.buffer !== other.buffer || end <= other.byteOffset || otherEnd <= one.byteOffset;
}
