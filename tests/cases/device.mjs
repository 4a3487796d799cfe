// Where the tensors of a case lie on a CUDA device, for groups with NCCL. Knows nothing of how a
// case is read.

/** What NCCL does not reduce. */
const TYPES = new Set(["u16", "i16"]);
const OPERATORS = new Set(["BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR"]);
/** Those of them that it has of truth values. */
const OF_BOOL = new Set(["BAND", "BOR"]);
const ROUNDED = new Set(["f16", "bf16", "f32", "f64", "complex64", "complex128"]);

/** The memory of one device, for the tensors of cases. */
export class OnDevice {
  constructor(pr, index) {
    Object.assign(this, { pr, index });
  }

  /** The device of a rank: `cuda` is that with the rank's number, `cuda:0` the first for all; null
   * without a name. */
  static named(pr, name, rank) {
    const [kind, index] = (name ?? "").split(":");
    return kind === "cuda" ? new OnDevice(pr, Number(index ?? rank)) : null;
  }

  /** Whether a case can be run: with strides, ranks with a block of one element have no reason to
   * refuse what the others refuse; and NCCL has each rank divide for an average, which is not exact
   * unless the world is a power of two. */
  takes({ strided, facts, op, dtype, world }) {
    const isRounded = facts.reduces && op === "AVG" && ROUNDED.has(dtype);
    return !strided && !(isRounded && world & (world - 1));
  }

  /** Whether the call must be refused, on all ranks. */
  refuses({ facts, form, dtype, op }) {
    if (!facts.reduces) return false;
    // NCCL has none.
    if (["scan", "exscan"].includes(form.collective)) return true;
    if (dtype === "bool") return OPERATORS.has(op) && !OF_BOOL.has(op);
    return TYPES.has(dtype) || OPERATORS.has(op);
  }

  /** Puts the tensors of a call on the device. */
  async put(operations) {
    for (const slot of slotsOf(operations)) {
      slot.tensor = await this.pr.CudaTensor.from(slot.tensor, { device: this.index });
    }
  }

  /** Brings back what is in them. */
  async get(operations) {
    for (const slot of slotsOf(operations)) {
      await slot.tensor.copyTo(slot.memory);
      slot.tensor.free();
    }
  }
}

function slotsOf(operations) {
  return operations.flatMap((slots) => Object.values(slots).flat());
}
