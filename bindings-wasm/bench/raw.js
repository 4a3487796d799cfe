// Bytes from tab to tab through the relay of a store's server, in plain JavaScript: what the
// package is compared with. Speaks the protocol of sessions and relayed pipes as far as a
// connection that never breaks needs it. Knows nothing of polyrank's module.

/** Of the sessions that the server speaks. */
const SESSION_VERSION = 2;
const CHUNK_BYTES = 64 << 10;
const WINDOW_BYTES = 1 << 20;
const SESSION_HEADER_BYTES = 24;
const RELAY_HEADER_BYTES = 16;
const [HELLO, WELCOME, DATA, ACK] = [1, 2, 3, 4];
const [OPEN, CHUNK, CREDIT] = [1, 2, 3];
const RELAY_CHANNEL = 1;
/** What a message, and a chunk, take of their windows beside their bytes. */
const MESSAGE_COST_BYTES = 64;
const CHUNK_COST_BYTES = 128;

/** A pipe to another tab. */
export class RawPipe {
  #socket;
  #sent = 0n;
  #taken = 0n;
  #untold = 0;
  #unread = 0;
  /** Costs of messages that the server has not taken, oldest first, and how many it took. */
  #kept = [];
  #keptBytes = 0;
  #acknowledged = 0n;
  #room = WINDOW_BYTES;
  #outgoing = null;
  #incoming = null;
  #early = [];
  #pipe = { mine: false, id: 0 };

  constructor(url) {
    this.#socket = new WebSocket(url);
    this.#socket.binaryType = "arraybuffer";
    this.ready = new Promise((resolve, reject) => {
      this.#socket.onopen = () => this.#socket.send(hello());
      this.#socket.onclose = ({ code, reason }) => {
        const error = new Error(`closed: ${code} ${reason}`);
        reject(error);
        this.#incoming?.reject(error);
      };
      this.#socket.onmessage = ({ data }) => this.#packet(new DataView(data), resolve);
    });
  }

  /** Opens the pipe to the tab with this number; the one with the lower number says so. */
  connect(peer) {
    this.peer = peer;
    this.#pipe.mine = this.number < peer;
    if (this.#pipe.mine) this.#send(OPEN, new Uint8Array(8));
  }

  /** Sends `bytes`, and fills `into` with what comes. */
  exchange(bytes, into) {
    return new Promise((resolve, reject) => {
      this.#incoming = { into, at: 0, resolve, reject };
      this.#outgoing = { bytes, at: 0 };
      for (const chunk of this.#early.splice(0)) this.#chunk(chunk);
      this.#pump();
    });
  }

  #packet(view, welcome) {
    switch (view.getUint8(0)) {
      case WELCOME:
        this.number = view.getBigUint64(40, true);
        return welcome(this.number);
      case ACK:
        return this.#tookUntil(view.getBigUint64(8, true));
      default:
        this.#tookUntil(view.getBigUint64(16, true));
        this.#taken += 1n;
        this.#untold += view.byteLength + MESSAGE_COST_BYTES;
        this.#relayed(view);
        if (this.#untold >= WINDOW_BYTES / 4) this.#acknowledge();
        return undefined;
    }
  }

  #tookUntil(taken) {
    for (; this.#acknowledged < taken; this.#acknowledged += 1n) {
      this.#keptBytes -= this.#kept.shift();
    }
    this.#pump();
  }

  #acknowledge() {
    const view = new DataView(new ArrayBuffer(16));
    view.setUint8(0, ACK);
    view.setBigUint64(8, this.#taken, true);
    this.#untold = 0;
    this.#socket.send(view);
  }

  #relayed(view) {
    const kind = view.getUint8(SESSION_HEADER_BYTES);
    const body = SESSION_HEADER_BYTES + RELAY_HEADER_BYTES;
    if (kind === CREDIT) {
      this.#room += view.getUint32(body, true);
      this.#pump();
    } else if (kind === CHUNK) {
      const chunk = new Uint8Array(view.buffer, body);
      if (this.#incoming === null) this.#early.push(chunk);
      else this.#chunk(chunk);
    }
  }

  #chunk(chunk) {
    const incoming = this.#incoming;
    incoming.into.set(chunk, incoming.at);
    incoming.at += chunk.length;
    this.#unread += chunk.length + CHUNK_COST_BYTES;
    if (this.#unread >= WINDOW_BYTES / 4) {
      this.#send(CREDIT, new Uint8Array(Uint32Array.of(this.#unread).buffer));
      this.#unread = 0;
    }
    if (incoming.at === incoming.into.length) {
      this.#incoming = null;
      incoming.resolve();
    }
  }

  #pump() {
    const outgoing = this.#outgoing;
    while (outgoing !== null && outgoing.at < outgoing.bytes.length) {
      const chunk = outgoing.bytes.subarray(outgoing.at, outgoing.at + CHUNK_BYTES);
      // Credits, which are small, go through a full window.
      const cost = chunk.length + 8192;
      if (this.#keptBytes + cost > WINDOW_BYTES || this.#room < cost) return;
      this.#room -= chunk.length + CHUNK_COST_BYTES;
      outgoing.at += chunk.length;
      this.#send(CHUNK, chunk);
    }
    this.#outgoing = null;
  }

  #send(kind, bytes) {
    const length = SESSION_HEADER_BYTES + RELAY_HEADER_BYTES + bytes.length;
    const packet = new Uint8Array(length);
    const view = new DataView(packet.buffer);
    this.#sent += 1n;
    view.setUint8(0, DATA);
    view.setUint8(1, RELAY_CHANNEL);
    view.setBigUint64(8, this.#sent, true);
    view.setBigUint64(16, this.#taken, true);
    this.#untold = 0;
    view.setUint8(24, kind);
    view.setUint8(25, this.#pipe.mine ? 1 : 0);
    view.setUint32(28, this.#pipe.id, true);
    view.setBigUint64(32, this.peer, true);
    packet.set(bytes, SESSION_HEADER_BYTES + RELAY_HEADER_BYTES);
    this.#kept.push(length + MESSAGE_COST_BYTES);
    this.#keptBytes += length + MESSAGE_COST_BYTES;
    this.#socket.send(packet);
  }
}

function hello() {
  const view = new DataView(new ArrayBuffer(40));
  view.setUint8(0, HELLO);
  view.setUint32(4, SESSION_VERSION, true);
  view.setUint32(32, WINDOW_BYTES, true);
  return view;
}
