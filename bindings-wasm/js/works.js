// The module's operations as objects, and short calls: their arrays are copied to the module's
// memory and from there, which is cheaper than to hand them over. Knows nothing of what operations
// are for.

import { commName } from "./runtime/comm_name.js";
import { NativeWork, installWorks } from "./runtime/native_works.js";
import { codeOf } from "./runtime/tensors.js";
import { byteLengthOf, bytesOf } from "./runtime/views.js";
import { called } from "./watch/called.js";

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
    workIssue: (work) => works.issue(work),
    workPrepared: (work) => works.prepared(work),
  });
  const { shortIsReceive, shortTimeoutMs, shortGroupName } = module;
  return {
    nameCalls: (name) => module.nameCalls(name ?? undefined),
    prepare(group, method, args, keywords, tensors, infos, maxEagerBytes) {
      const { prepare } = module;
      const work = prepare(group, method, args, keywords, tensors, infos, maxEagerBytes);
      return works.prepare(work, method, args, keywords);
    },
    shortMethod: (key, arrays, operator, rank) => works.shortMethod(key, arrays, operator, rank),
    shortIsReceive,
    shortTimeoutMs,
    shortGroupName,
    runShort(group, method, first, second, operator, rank, timeoutMs, maxCopied) {
      const call = works.short(method);
      return works.run(call, group, rank, first, second, maxCopied, (dtype, one, other) => {
        return module.shortRun(group, method, dtype, one, other, operator, rank, timeoutMs);
      });
    },
    runPrepared(prepared, first, second, maxCopied) {
      const { call } = prepared;
      const { group, rank } = call;
      if (first === undefined) {
        return works.settle(prepared.run(NO_TYPE, 0, 0), 0, call, group, rank, []);
      }
      return works.run(call, group, rank, first, second, maxCopied, (dtype, one, other) => {
        return prepared.run(dtype, one, other);
      });
    },
  };
}

/** What is known of the calls of a method: `method` stands for its name, if that depends on nothing
 * else; `key` is the core's; `title` is that of a collective, or null. A message's other rank is
 * the argument `rankName`, or is in `args` or `keywords`. */
class Call {
  constructor(method, key, title, { rankName = null, args = null, keywords = null }) {
    this.method = method;
    this.key = key;
    this.title = title;
    this.rankName = rankName;
    this.args = args;
    this.keywords = keywords;
    // Of what is prepared.
    this.group = 0;
    this.rank = -1;
  }
}

class Works {
  #module;
  #memory;
  /** All bytes of the memory; of none, when that has grown, which then lies elsewhere. */
  #bytes;
  /** How many numbers were given. */
  #last = 0;
  /** The calls that have a number as short ones. */
  #shorts = [];
  /** The operation that was prepared last, and its call. */
  #latest = { work: -1, call: null };

  constructor(module, memory) {
    this.#module = module;
    this.#memory = memory;
    this.#bytes = new Uint8Array(memory.buffer);
  }

  shortMethod(key, arrays, operator, rank) {
    const method = this.#module.shortMethod(key, arrays, operator, rank);
    if (method !== -1) {
      this.#shorts[method] = new Call(method, key, called.collective(key), { rankName: rank });
    }
    return method;
  }

  short(method) {
    return this.#shorts[method];
  }

  /** An operation that was resolved, and may be issued. */
  prepare(work, key, args, keywords) {
    const name = commName();
    // A name that the caller gives is a part of it.
    const title = called.collective(key);
    const method = name === null ? key : null;
    const shown = title === null || name === null ? title : `${title} '${name}'`;
    const call = new Call(method, key, shown, { args, keywords });
    this.#latest = { work, call };
    if (title !== null) this.#note(work, shown);
    return this.#made(work, call, -1, false);
  }

  /** Issues an operation that was not issued by the call that made it. */
  issue(work) {
    this.#module.workIssue(work);
    const name = this.#module.workName(work);
    const title = called.collective(name.replace(/ '.*$/su, ""));
    if (title !== null) this.#note(work, name);
  }

  /** What starts an operation again and again that was prepared just now. */
  prepared(work) {
    const prepared = this.#module.workPrepared(work);
    if (prepared === undefined) return prepared;
    const { call } = this.#latest;
    // It is another operation each time.
    const { key, title, args, keywords } = call;
    const method = key.replace("_PREPARE_", "_");
    prepared.call = new Call(null, method, title, { args, keywords });
    prepared.call.group = this.#module.workGroup(work);
    return prepared;
  }

  #made(work, call, rank, isNew) {
    this.#last += 1;
    const made = new NativeWork(work, this.#last, { method: call.method, isNew });
    made.call = call;
    made.rank = rank;
    return made;
  }

  #note(work, title) {
    const sequence = this.#module.workSequence(work);
    if (sequence >= 0) called.note(this.#module.workGroup(work), title, sequence);
  }

  /** What `act` does with arrays that were copied to the module, given their type and lengths;
   * null if they are none of a short call. */
  run(call, group, rank, first, second, maxCopied, act) {
    const [one, other] = [byteLengthOf(first), second === null ? 0 : byteLengthOf(second)];
    // An array may have been given away, of which the long way tells.
    if (one === 0 || Math.max(one, other) > MAX_BYTES || one + other > maxCopied) return null;
    if (second !== null && (other === 0 || !areApart(first, second))) return null;
    const at = this.#module.shortArrays(one + other);
    const bytes = this.#now();
    bytes.set(bytesOf(first), at);
    if (second !== null) bytes.set(bytesOf(second), at + one);
    return this.settle(act(codeOf(first), one, other), at, call, group, rank, [first, second]);
  }

  /** What a short call gives whose arrays were copied to `at`; its result is copied to them. */
  settle(outcome, at, call, group, rank, [first, second]) {
    if (outcome === DECLINED) return null;
    if (outcome >= WORKS) {
      const work = outcome - WORKS;
      if (call.title !== null) called.note(group, call.title, this.#module.workSequence(work));
      return this.#made(work, call, rank, true);
    }
    const sequence = this.#module.shortSequence();
    if (call.title !== null) called.note(group, call.title, sequence);
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
