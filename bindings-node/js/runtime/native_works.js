// The native half's operations as objects: it has functions for them, which are cheaper to call
// than methods of its own objects. One in WebAssembly keeps an operation until it is told to give
// it up (`workEnd`). That happens when the operation has ended, and what may still be asked of it
// is kept here. Knows nothing of what operations are for.

/** The functions of the native half: `workName(work)` and so on. */
let half;

/** Gives up operations that were dropped before they were issued: others are kept until they end.
 * Null where the native half does that by itself. */
let dropped = null;

/** What stands for the number of an operation that was given up: no operation has it, while its own
 * may be another's by now. */
const GIVEN_UP = 2 ** 32 - 1;

/** Names by the methods that were called, and names of groups by their numbers. */
const names = new Map();
const groupNames = new Map();
// Programs that make groups in a loop must not fill the memory.
const MAX_NAMES = 1000;

/** Sets the functions. */
export function installWorks(functions) {
  half = functions;
  if (half.workEnd !== undefined) dropped = new FinalizationRegistry((work) => half.workEnd(work));
}

/** An operation, as `interface NativeWork` has it. */
export class NativeWork {
  #work;
  #method;
  /** Whether it went well and is over: the native half need not be called any more. */
  #isOver;
  /** Whether the call that issued it has just seen that it is not done. */
  #isNew;

  /** `method` stands for its name, if that depends on nothing else; else it is null. One that
   * `isNew` was issued just now, and counts as not done when that is asked first. */
  constructor(work, id, { method = null, isOver = false, isNew = false } = {}) {
    this.#work = work;
    this.#method = method;
    this.#isOver = isOver;
    this.#isNew = isNew;
    this.id = id;
    if (dropped === null || isNew || half.workIssued(work)) return;
    dropped.register(this, work, this);
  }

  get name() {
    return half.workName(this.#work);
  }

  get sequence() {
    return half.workSequence(this.#work);
  }

  get timeoutMs() {
    return half.workTimeoutMs(this.#work);
  }

  get group() {
    return half.workGroup(this.#work);
  }

  get groupName() {
    return half.workGroupName(this.#work);
  }

  get outputs() {
    return half.workOutputs(this.#work);
  }

  get inputs() {
    return half.workInputs(this.#work);
  }

  facts() {
    return half.workFacts(this.#work);
  }

  checkFinite(tensors, allowInfinity) {
    half.workCheckFinite(this.#work, tensors, allowInfinity);
  }

  prepared() {
    return half.workPrepared(this.#work);
  }

  refuse(why) {
    half.workRefuse(this.#work, why);
  }

  get issued() {
    return this.#isOver || half.workIssued(this.#work);
  }

  get bytesCopiedIn() {
    return half.workBytesCopiedIn(this.#work);
  }

  copyIn(tensors, budget) {
    return half.workCopyIn(this.#work, tensors, budget);
  }

  issue() {
    half.workIssue(this.#work);
  }

  giveUp(why) {
    half.workGiveUp(this.#work, why);
  }

  isDone() {
    if (this.#isNew) {
      this.#isNew = false;
      return false;
    }
    return this.#isOver || half.workIsDone(this.#work);
  }

  watch() {
    half.workWatch(this.#work, this.id);
  }

  error() {
    return this.#isOver ? null : half.workError(this.#work);
  }

  copyOut(tensors, budget) {
    return this.#isOver ? 0 : half.workCopyOut(this.#work, tensors, budget);
  }

  sourceRank() {
    return half.workSourceRank(this.#work);
  }

  compressionError() {
    return half.workCompressionError(this.#work);
  }

  /** It has ended, and nothing is to be copied any more: what stands for it from now on. */
  end() {
    if (dropped === null) return this;
    const work = this.#work;
    const ended = new EndedWork(work, this.id, this.#method);
    dropped.unregister(this);
    half.workEnd(work);
    this.#work = GIVEN_UP;
    return ended;
  }
}

/** What may be asked of an operation that the native half has given up. */
class EndedWork {
  issued = true;
  #outputs;
  #source;
  #loss;

  constructor(work, id, method) {
    this.id = id;
    this.name = nameOf(work, method);
    this.sequence = half.workSequence(work);
    this.timeoutMs = half.workTimeoutMs(work);
    this.group = half.workGroup(work);
    this.groupName = groupNameOf(work, this.group);
    this.#outputs = half.workOutputBits(work) ?? half.workOutputs(work);
    this.#source = half.workSourceRank(work);
    this.#loss = half.workCompressionError(work);
  }

  get outputs() {
    if (typeof this.#outputs === "number") this.#outputs = positionsOf(this.#outputs);
    return this.#outputs;
  }

  isDone() {
    return true;
  }

  sourceRank() {
    return this.#source;
  }

  compressionError() {
    return this.#loss;
  }

  end() {
    return this;
  }
}

function nameOf(work, method) {
  return known(names, method, () => half.workName(work));
}

function groupNameOf(work, group) {
  return known(groupNames, group, () => half.workGroupName(work) ?? null);
}

/** What `table` has for `key`, or what `ask` says, which it has from now on; null: never. */
function known(table, key, ask) {
  let value = key === null ? undefined : table.get(key);
  if (value !== undefined) return value;
  value = ask();
  if (key === null) return value;
  if (table.size >= MAX_NAMES) table.clear();
  table.set(key, value);
  return value;
}

/** The positions of the bits of a number. */
function positionsOf(bits) {
  const positions = [];
  for (let at = 0; bits >>> at !== 0; at += 1) if ((bits >>> at) & 1) positions.push(at);
  return positions;
}
