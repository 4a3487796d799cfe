// Objects that wrap something native: process groups and stores. Their class is found by the type
// name of the handle. Knows no class by name.

/** The property of an object that holds its native handle. */
export const HANDLE = Symbol("polyrank.handle");

/** The argument by which only this package can call a constructor; the handle follows it. */
export const MADE = Symbol("polyrank.made");

const classes = new Map();
const prototypes = new Set();

/** The objects that are alive, by handle id: one process group is one object. */
const alive = new Map();
const ended = new FinalizationRegistry((id) => {
  if (alive.get(id)?.deref() === undefined) alive.delete(id);
});

let notifyKept = () => {};

/** Sets `callback` to be called with every object that wraps something native from now on. */
export function whenKept(callback) {
  notifyKept = callback;
}

/** Registers a class for handles of the type `name`, and the interfaces that it has. */
export function register(name, made, interfaces) {
  classes.set(name, { made, interfaces });
  prototypes.add(made.prototype);
}

/** Whether an object is the prototype of a class of this package. */
export function isOwnPrototype(object) {
  return prototypes.has(object);
}

/** Keeps `handle` in `object`, which wraps it from now on. */
export function keep(object, handle) {
  const interfaces = classes.get(handle.type)?.interfaces ?? [];
  const marked = { kind: "handle", handle, typeName: handle.type, interfaces };
  Object.defineProperty(object, HANDLE, { value: { handle, marked, id: handle.id } });
  if (handle.id === undefined) return;
  keepAs(object, handle.id);
  notifyKept(object);
}

/** Has `object` stand for handles of this number. */
export function keepAs(object, id) {
  alive.set(id, new WeakRef(object));
  ended.register(object, id);
}

/** The native handle of `object`; none if it wraps nothing native. */
export function handleOf(object) {
  return object?.[HANDLE]?.handle ?? null;
}

/** The native handle for a call of the method of this name on `object`. */
export function receiverOf(object, name) {
  const kept = object?.[HANDLE];
  return kept?.receiver?.(name) ?? kept?.handle ?? null;
}

/** What a call of the method of this name on `object` gives for a handle; null: its object. */
export function answerOf(object, name, handle) {
  return object?.[HANDLE]?.answer?.(name, handle) ?? null;
}

/** Whether `value` is a handle of the native half. */
export function isHandle(value) {
  return typeof value === "object" && value !== null && classes.has(value.type);
}

/** The object for a native handle: the same one as long as it is alive. */
export function wrap(handle) {
  const known = handle.id === undefined ? undefined : alive.get(handle.id)?.deref();
  if (known !== undefined) {
    // It has one already.
    if (known[HANDLE]?.handle !== handle) handle.free?.();
    return known;
  }
  return new (classes.get(handle.type).made)(MADE, handle);
}
