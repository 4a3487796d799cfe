// A ring of packets in shared memory, from one Worker to another, neither of which waits for the
// other. Knows nothing of what packets say, nor of who wakes whom.
//
// A packet is a word with its length, the number of its pipe, and its bytes; it lies in one piece.
// Both ends count bytes, modulo 2^32, so that as many are in the ring as the counts differ.

/** Words of the head that each end writes are far from each other, for they are in the caches of
 * different cores. */
const [WRITTEN, READ, ASLEEP, CROWDED] = [0, 16, 32, 48];
const HEAD_BYTES = 256;
/** Bytes before those of a packet; all begin at multiples of it. */
const PACKET_HEAD_BYTES = 16;
/** The length of what is left of the ring where the next packet had no room before its end. */
const SKIPPED = 0xffff_ffff;

/** Bytes of the packets that a ring holds, a power of two: some of the longest ones. */
const RING_BYTES = 1 << 19;

/** Bytes of shared memory that a ring takes. */
export const RING_MEMORY_BYTES = HEAD_BYTES + RING_BYTES;

const padded = (bytes) => (bytes + PACKET_HEAD_BYTES - 1) & -PACKET_HEAD_BYTES;

/** What both ends have of a ring. */
class RingEnd {
  constructor(memory, offset) {
    this.words = new Int32Array(memory, offset, RING_MEMORY_BYTES >> 2);
    this.bytes = new Uint8Array(memory, offset + HEAD_BYTES, RING_BYTES);
    this.data = new DataView(memory, offset + HEAD_BYTES, RING_BYTES);
    this.at = 0;
  }

  count(word) {
    return Atomics.load(this.words, word) >>> 0;
  }

  /** Whether the other end has raised this flag, which is lowered. */
  takeFlag(word) {
    return Atomics.load(this.words, word) === 1 && Atomics.exchange(this.words, word, 0) === 1;
  }
}

/** The end that writes. */
export class RingWriter extends RingEnd {
  /** What the reader had read when there was too little room; null, if there was enough. */
  #crowdedAt = null;
  #start = 0;
  #filled = 0;

  /** Bytes of the longest packet for which there is room. If that is too little for a packet of
   * `wanted` bytes, the reader is to tell when there is more. */
  room(wanted) {
    const room = this.#room();
    this.#crowdedAt = null;
    if (room >= wanted) return room;
    this.#crowdedAt = this.count(READ);
    Atomics.store(this.words, CROWDED, 1);
    // The reader may just have made some.
    return this.#room();
  }

  /** Whether there is more room than when there was too little. */
  get isRoomier() {
    return this.#crowdedAt !== null && this.count(READ) !== this.#crowdedAt;
  }

  #room() {
    const free = RING_BYTES - ((this.at - this.count(READ)) >>> 0);
    const ahead = RING_BYTES - (this.at & (RING_BYTES - 1));
    return Math.max(Math.max(Math.min(free, ahead), free - ahead) - PACKET_HEAD_BYTES, 0);
  }

  /** Begins a packet of `length` bytes, for which there is room. */
  begin(pipe, length) {
    let start = this.at & (RING_BYTES - 1);
    if (RING_BYTES - start < PACKET_HEAD_BYTES + length) {
      this.data.setUint32(start, SKIPPED, true);
      this.at = (this.at + RING_BYTES - start) >>> 0;
      start = 0;
    }
    this.data.setUint32(start, length, true);
    this.data.setFloat64(start + 8, pipe, true);
    this.#start = start + PACKET_HEAD_BYTES;
    this.#filled = 0;
  }

  /** Adds bytes to the packet. */
  fill(part) {
    this.bytes.set(part, this.#start + this.#filled);
    this.#filled += part.length;
  }

  /** Hands the packet over, which has all its bytes; whether the reader has to be woken. */
  commit() {
    this.at = (this.at + PACKET_HEAD_BYTES + padded(this.#filled)) >>> 0;
    Atomics.store(this.words, WRITTEN, this.at | 0);
    return this.takeFlag(ASLEEP);
  }
}

/** The end that reads. */
export class RingReader extends RingEnd {
  /** The pipe of the packet that was read last. */
  pipe = 0;
  #dropped = 0;

  /** Whether there is a packet that was not read. */
  get hasPacket() {
    return this.count(WRITTEN) !== this.at;
  }

  /** Says whether a writer has to wake this end. */
  set isAsleep(isAsleep) {
    Atomics.store(this.words, ASLEEP, isAsleep ? 1 : 0);
  }

  /** The bytes of the next packet, which stay what they are until the packet is dropped. Null, if
   * there is none. */
  read() {
    const written = this.count(WRITTEN);
    if (written === this.at) return null;
    let start = this.at & (RING_BYTES - 1);
    let length = this.data.getUint32(start, true);
    if (length === SKIPPED) {
      this.at = (this.at + RING_BYTES - start) >>> 0;
      start = 0;
      length = this.data.getUint32(0, true);
    }
    this.pipe = this.data.getFloat64(start + 8, true);
    this.at = (this.at + PACKET_HEAD_BYTES + padded(length)) >>> 0;
    return this.bytes.subarray(start + PACKET_HEAD_BYTES, start + PACKET_HEAD_BYTES + length);
  }

  /** Makes room where all packets lay that were read; whether the writer has to be woken. */
  drop() {
    if (this.#dropped === this.at) return false;
    this.#dropped = this.at;
    Atomics.store(this.words, READ, this.at | 0);
    return this.takeFlag(CROWDED);
  }
}
