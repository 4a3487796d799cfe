// Which memory the operations in flight use: those on one array follow one another, as the calls
// did, so that each sees what the one before it left. Knows nothing of how operations are issued.

import { spanOf } from "./tensors.js";

/** Spans of memory in use, by the buffer, or the memory of polyrank, that they lie in. */
const spansByMemory = new Map();

/** Notes the memory of an operation, until `releaseMemory`. */
export function registerMemory(operation) {
  operation.spans = operation.tensors.map((bytes, index) => {
    const span = spanOf(bytes, operation.infos[index]);
    span.index = index;
    span.operation = operation;
    return span;
  });
  for (const span of operation.spans) {
    const known = spansByMemory.get(span.memory);
    if (known === undefined) spansByMemory.set(span.memory, new Set([span]));
    else known.add(span);
  }
}

/** The operation uses no memory any more. */
export function releaseMemory(operation) {
  for (const span of operation.spans) {
    const known = spansByMemory.get(span.memory);
    known.delete(span);
    if (known.size === 0) spansByMemory.delete(span.memory);
  }
  operation.spans = [];
}

/** Whether no operation in flight uses memory. */
export function isNothingInUse() {
  return spansByMemory.size === 0;
}

/** Pairs of spans that overlap: of the tensors of a call, and of an operation in flight. */
export function findOverlaps({ tensors, infos }) {
  const found = [];
  if (spansByMemory.size === 0) return found;
  tensors.forEach((bytes, index) => {
    const own = { ...spanOf(bytes, infos[index]), index };
    for (const other of spansByMemory.get(own.memory) ?? []) {
      if (overlap(own, other)) found.push({ own, other });
    }
  });
  return found;
}

/** The operations in flight that must end before this one begins. */
export function predecessors(found, native) {
  const before = new Set();
  for (const { own, other } of found) {
    if (isToBeWritten(other) || (isToBeRead(other, native) && native.outputs.includes(own.index))) {
      before.add(other.operation);
    }
  }
  return before;
}

/** Whether the operation will write there; one that a signal cancelled copies nothing out. */
function isToBeWritten({ operation, index, isOwned }) {
  const { native, state } = operation;
  return native.outputs.includes(index) && (isOwned || state !== "ended");
}

/** Whether it may still read there, when the one after it, `native`, has written. */
function isToBeRead({ operation, isOwned }, native) {
  return isOwned || (!operation.native.issued && operation.native.group !== native.group);
}

function overlap(one, other) {
  if (one.from >= other.to || other.from >= one.to) return false;
  // Columns of one matrix lie between each other.
  const { step, bytes } = one;
  if (step === 0 || step !== other.step || bytes !== other.bytes) return true;
  const apart = Math.abs(one.from - other.from) % step;
  return apart < bytes || step - apart < bytes;
}
