// Which memory of polyrank an array looks at: operations use that in place, whether they are given
// the tensor or an array over it. Knows nothing of tensors or of operations.

import { bytesOf } from "./views.js";

/** Memory that was looked at, by the buffer that it lay in then and its first byte there. In Node
 * each memory has a buffer of its own; in WebAssembly all lie in one, which growth replaces. */
const homes = new WeakMap();
const released = new FinalizationRegistry(({ memories, from, place }) => {
  if (memories.get(from) === place) memories.delete(from);
});

/** Notes that `memory` lies where `bytes` do. */
export function noteHome(memory, { buffer, byteOffset: from, byteLength }) {
  if (byteLength === 0) return;
  let memories = homes.get(buffer);
  if (memories === undefined) homes.set(buffer, (memories = new Map()));
  if (memories.get(from)?.memory.deref() === memory) return;
  const place = { from, to: from + byteLength, memory: new WeakRef(memory) };
  memories.set(from, place);
  released.register(memory, { memories, from, place });
}

/** The memory that all of `bytes` lie in, how many it has, and how far from its beginning
 * they are; null: in none. */
export function homeOf({ buffer, byteOffset, byteLength }) {
  if (byteLength === 0) return null;
  const memories = homes.get(buffer);
  if (memories === undefined) return null;
  const to = byteOffset + byteLength;
  const first = within(memories.get(byteOffset), byteOffset, to);
  if (first !== null) return first;
  for (const place of memories.values()) {
    const found = within(place, byteOffset, to);
    if (found !== null) return found;
  }
  return null;
}

/** The bytes of a view for a call that copies them: those in memory of polyrank are copied here,
 * because the call itself may move that memory. */
export function steadyBytesOf(view) {
  const bytes = bytesOf(view);
  return homes.has(bytes.buffer) ? bytes.slice() : bytes;
}

function within(place, from, to) {
  if (place === undefined || from < place.from || to > place.to) return null;
  // Where memory was that is gone, there may be another one.
  const memory = place.memory.deref();
  if (memory === undefined) return null;
  return { memory, memoryBytes: place.to - place.from, offset: from - place.from };
}
