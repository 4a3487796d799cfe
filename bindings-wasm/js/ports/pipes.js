// Pipes of chunks between the members of a store, which are Workers of one page and the page. All
// pipes between two of them share a link: a message port, and two rings where memory can be shared.
// Knows nothing of what the chunks say, nor of how the two got to know each other.
//
// A chunk on the port is an ArrayBuffer that begins with the number of its pipe; through the rings
// go chunks alone. Other messages are lists: their kind, and what they are about.

import { RING_MEMORY_BYTES, RingReader, RingWriter } from "./ring.js";
import { polling, turn } from "./polling.js";

/** Bytes of the shared memory of a link. */
export const LINK_MEMORY_BYTES = 2 * RING_MEMORY_BYTES;

/** What a message that is no chunk says: there is something in a ring; a pipe was closed, in order
 * or not; so many bytes were taken. */
const [AWAKE, GOODBYE, ABANDONED, TAKEN] = [0, 1, 2, 3];

/** The states of a pipe, as the native half has them. */
const [CONNECTING, OPEN, LEFT, LOST] = [0, 1, 2, 3];

/** Bytes before those of a chunk on a port. */
const CHUNK_HEAD_BYTES = 8;
/** Most bytes on the way to another member over its port. */
const WINDOW_BYTES = 4 << 20;
/** The longest chunks are a little longer than 64 KiB. */
const CHUNK_BYTES = (64 << 10) + 256;

class PipeEnd {
  /** What came and was not taken. */
  chunks = [];
  /** LEFT or LOST, once the other end says so. */
  ended = null;
  why = "it closed its connection without a goodbye";
  /** Whether this end was closed. */
  isClosed = false;

  constructor(link, id) {
    this.link = link;
    this.id = id;
  }

  get state() {
    if (this.ended !== null) return this.ended;
    return this.link.state;
  }
}

/** The way to one other member. */
export class Link {
  #port = null;
  #reader = null;
  #writer = null;
  #pipes = new Map();
  /** Why there is none any more. */
  #why = null;
  /** The chunk that is being put together, unless that is done in the ring; how much is there. */
  #chunk = null;
  #filled = 0;
  /** Chunks that had no room in the ring, which pipes share: greetings are sent all the same. */
  #late = [];
  /** Bytes that were sent over the port and not taken; bytes that were taken and not told. */
  #underWay = 0;
  #untold = 0;

  /** The other side is reached over `port`, and through `memory` if it is not null; one of both
   * `isFirst`. */
  connect(port, memory, isFirst) {
    if (this.#why !== null) return;
    this.#port = port;
    if (memory !== null) {
      const [mine, theirs] = isFirst ? [0, RING_MEMORY_BYTES] : [RING_MEMORY_BYTES, 0];
      this.#writer = new RingWriter(memory, mine);
      this.#reader = new RingReader(memory, theirs);
      polling.add(this);
    }
    port.onmessage = ({ data }) => this.#came(data);
    // Under Node, a port that listens keeps the process alive; what waits for it does so itself.
    port.unref?.();
    this.settle();
    // This may be called in a turn.
    queueMicrotask(turn);
  }

  /** The other side is gone. */
  lose(why) {
    this.#why ??= why;
    polling.delete(this);
    queueMicrotask(turn);
  }

  get state() {
    if (this.#why !== null) return LOST;
    return this.#port === null ? CONNECTING : OPEN;
  }

  get why() {
    return this.#why;
  }

  get isConnected() {
    return this.#port !== null;
  }

  /** The end of the pipe with this number, which either side may be the first to name. */
  pipe(id) {
    let pipe = this.#pipes.get(id);
    if (pipe === undefined) {
      pipe = new PipeEnd(this, id);
      this.#pipes.set(id, pipe);
    }
    return pipe;
  }

  /** Bytes of a chunk for which there is room. */
  room() {
    if (this.#writer === null) return Math.max(WINDOW_BYTES - this.#underWay, 0);
    if (this.#late.length > 0 && !this.#sendLate()) return 0;
    return this.#writer.room(CHUNK_BYTES);
  }

  /** Adds `part` to a chunk of `bytes` bytes, which leaves when it has all of them. */
  send(pipe, part, bytes) {
    if (this.#filled === 0) this.#begin(pipe, bytes);
    if (this.#chunk === null) this.#writer.fill(part);
    else this.#chunk.set(part, CHUNK_HEAD_BYTES + this.#filled);
    this.#filled += part.length;
    if (this.#filled < bytes) return;
    this.#filled = 0;
    this.#finish();
  }

  #begin(pipe, bytes) {
    const isInRing = this.#writer !== null && this.#late.length === 0;
    if (isInRing && this.#writer.room(bytes) >= bytes) {
      this.#writer.begin(pipe.id, bytes);
      return;
    }
    this.#chunk = new Uint8Array(CHUNK_HEAD_BYTES + bytes);
    new DataView(this.#chunk.buffer).setFloat64(0, pipe.id, true);
  }

  #finish() {
    const chunk = this.#chunk;
    this.#chunk = null;
    if (chunk === null) {
      this.#commit();
    } else if (this.#writer !== null) {
      this.#late.push(chunk);
    } else {
      this.#underWay += chunk.length;
      this.#port.postMessage(chunk.buffer, [chunk.buffer]);
    }
  }

  #commit() {
    if (this.#writer.commit()) this.#port.postMessage([AWAKE]);
  }

  /** Whether no chunk waits any more for room in the ring. */
  #sendLate() {
    while (this.#late.length > 0) {
      const [chunk] = this.#late;
      const bytes = chunk.subarray(CHUNK_HEAD_BYTES);
      if (this.#writer.room(bytes.length) < bytes.length) return false;
      this.#writer.begin(new DataView(chunk.buffer).getFloat64(0, true), bytes.length);
      this.#writer.fill(bytes);
      this.#commit();
      this.#late.shift();
    }
    return true;
  }

  /** The next chunk of a pipe; in shared memory, it is there until the next call. */
  take(pipe) {
    if (this.#reader !== null) this.#drop();
    if (this.#late.length > 0) this.#sendLate();
    if (pipe.chunks.length > 0) return this.#taken(pipe.chunks.shift());
    return this.#reader === null ? undefined : this.#read(pipe);
  }

  /** The next chunk of `pipe` in the ring; those of others before it go to these. */
  #read(pipe) {
    for (;;) {
      const bytes = this.#reader.read();
      if (bytes !== null) {
        if (this.#reader.pipe === pipe?.id) return bytes;
        const other = this.pipe(this.#reader.pipe);
        if (!other.isClosed) other.chunks.push(bytes.slice());
        this.#drop();
        continue;
      }
      if (polling.isActive) return undefined;
      this.#reader.isAsleep = true;
      // What came just before that wakes nobody.
      if (!this.#reader.hasPacket) return undefined;
    }
  }

  #drop() {
    if (this.#reader.drop()) this.#port.postMessage([AWAKE]);
  }

  /** A chunk that came over the port was taken: its sender is told, now and then. */
  #taken(chunk) {
    if (this.#reader !== null) return chunk;
    this.#untold += CHUNK_HEAD_BYTES + chunk.length;
    if (this.#untold >= WINDOW_BYTES / 4) {
      this.#port.postMessage([TAKEN, this.#untold]);
      this.#untold = 0;
    }
    return chunk;
  }

  /** This side uses the pipe no more, and tells the other. */
  close(pipe, isOrderly) {
    pipe.isClosed = true;
    for (const chunk of pipe.chunks.splice(0)) this.#taken(chunk);
    this.#port?.postMessage([isOrderly ? GOODBYE : ABANDONED, pipe.id]);
    this.#forget(pipe);
  }

  /** Nothing comes any more for a pipe that both ends have closed, but what is in the ring. */
  #forget(pipe) {
    if (!pipe.isClosed || pipe.ended === null) return;
    this.settle();
    this.#pipes.delete(pipe.id);
  }

  /** Whether a turn would find something in the rings. */
  get hasNews() {
    return this.#reader.hasPacket || this.#writer.isRoomier;
  }

  /** The other side need not wake this one, which looks by itself. */
  watch() {
    this.#reader.isAsleep = false;
  }

  /** From now on the other side has to wake this one; what is in the ring is sorted out. */
  settle() {
    if (this.#reader !== null) this.#read(null);
  }

  #came(data) {
    if (data instanceof ArrayBuffer) {
      const pipe = this.pipe(new DataView(data).getFloat64(0, true));
      const chunk = new Uint8Array(data, CHUNK_HEAD_BYTES);
      if (pipe.isClosed) this.#taken(chunk);
      else pipe.chunks.push(chunk);
    } else {
      this.#heard(data);
    }
    turn();
    // What no pipe of this side took must not keep the other side from waking it.
    this.settle();
  }

  #heard([kind, about]) {
    if (kind === TAKEN) this.#underWay -= about;
    if (kind !== GOODBYE && kind !== ABANDONED) return;
    const pipe = this.pipe(about);
    pipe.ended = kind === GOODBYE ? LEFT : LOST;
    this.#forget(pipe);
  }
}

/** Members of this realm, by their numbers: each finds its links by the other's number. */
const members = new Map();
/** Pipes by the numbers that the native half has. */
const opened = new Map();
let last = 0;

/** `find` gives the links of the member with the number `own`, which is of this realm. */
export function addMember(own, find) {
  members.set(own, find);
}

/** What the native half calls: its `PipeCarrier`. None of it runs a turn: it is called in one. */
export const carrier = {
  open(own, peer, id) {
    last += 1;
    opened.set(last, members.get(own)(peer).pipe(id));
    return last;
  },
  state: (number) => opened.get(number).state,
  why: (number) => opened.get(number).link.why ?? opened.get(number).why,
  room(number) {
    const pipe = opened.get(number);
    return pipe.state === OPEN ? pipe.link.room() : 0;
  },
  send(number, part, bytes) {
    const pipe = opened.get(number);
    pipe.link.send(pipe, part, bytes);
  },
  take(number) {
    const pipe = opened.get(number);
    return pipe.link.take(pipe);
  },
  close(number, isOrderly) {
    const pipe = opened.get(number);
    opened.delete(number);
    pipe.link.close(pipe, isOrderly);
  },
};
