// Stores that are written in JavaScript: which objects are such, which methods they have of their
// own, and what the native half is given for them. Knows nothing of how they are asked.

import { idlName } from "./arguments.js";
import { InvalidTypeError } from "../generated/errors.js";
import { HANDLE, MADE, isOwnPrototype, keep, keepAs } from "./handles.js";
import { native } from "./native.js";

/** What an object must have to be taken for a store. */
const NEEDED = ["set", "get", "add", "check", "compareSet", "deleteKey"];

/** What it may have besides; what it lacks is made of the others, where that can be. */
export const STORE_METHODS = [
  ...NEEDED,
  "append",
  "wait",
  "multiGet",
  "multiSet",
  "numKeys",
  "listKeys",
  "queuePush",
  "queuePop",
  "queueLen",
  "barrier",
];

/** What depends on which methods an object has. */
const DEPENDENT = new Set([...STORE_METHODS, "hasExtendedApi"]);

/** The native half's handles on objects, which do not keep these. */
const faces = new WeakMap();

/** The objects that the native half uses, by their numbers, and how often it has been given each.
 * Only who has an object, or what the native half does with it, keeps it. */
const used = new Map();

/** Whether an object that is not a `Store` can be taken for one. */
export function isStoreLike(object) {
  // The one name that no collection has is asked for first.
  return typeof object?.compareSet === "function" && object[HANDLE] === undefined &&
    NEEDED.every((name) => typeof object[name] === "function");
}

/** What an object lacks that is meant as a store, as text that continues a sentence about it. */
export function lackOf(object) {
  const lacking = NEEDED.filter((name) => typeof object[name] !== "function");
  // Collections have some methods of these names.
  if (lacking.length === 0 || lacking.length > NEEDED.length - 4) return "";
  return `, which has no ${lacking.join(" and no ")}`;
}

/** Whether a value is taken where a store is expected. */
export function isStore(value) {
  return value?.[HANDLE]?.marked.interfaces.includes("Store") || isStoreLike(value);
}

/** What an object that is not a `Store` is as an argument. */
export function markedStore(object) {
  const methods = STORE_METHODS.filter((name) => typeof object[name] === "function");
  return marked(hold(object, methods, null), ["Store"]);
}

/** Keeps what a `Store` is made of: a handle of the native half, or the object itself, if its class
 * is derived from the base class. */
export function keepStore(store, isBase, given) {
  const isOwn = given[0] !== MADE;
  if (isOwn && isBase) {
    throw new InvalidTypeError(
      `a Store is not made by \`new\`: derive a class from it that has ${NEEDED.join(", ")}`,
    );
  }
  const handle = isOwn ? native.makeStore(nameOf(store), null) : given[1];
  keep(store, handle);
  if (isOwn) faces.set(store, handle);
  const kept = store[HANDLE];
  const plain = kept.marked;
  const base = isOwn ? null : handle;
  Object.defineProperty(kept, "marked", {
    get() {
      const methods = methodsOf(store);
      if (!isOwn && methods.length === 0) return plain;
      return marked(hold(store, methods, base), plain.interfaces);
    },
  });
  kept.answer = (name, made) => (name === "clone" ? cloneOf(store, isOwn, made) : null);
  // A method that calls the one of its base class does not mean itself.
  kept.receiver = (name) => {
    if (!DEPENDENT.has(name)) return handle;
    const methods = methodsOf(store);
    if (isOwn) return hold(store, methods.filter((known) => known !== name), null);
    return methods.length === 0 || methods.includes(name) ? handle : hold(store, methods, base);
  };
}

/** What a static method of `base` promises to make: one of the class that it was called on. */
export function opened(called, base, made) {
  if (called === base || !(called?.prototype instanceof base)) return made;
  return made.then((store) => new called(MADE, store[HANDLE].handle));
}

/** What `clone` of a store of a class of the program gives, for another handle on the store of this
 * package that it is besides; null: the class is this package's. */
function cloneOf(store, isOwn, made) {
  // Its methods are all that there is, and wait for none of one another.
  if (isOwn) return store;
  if (isOwnPrototype(Object.getPrototypeOf(store))) return null;
  const clone = new store.constructor(MADE, made);
  if (clone[HANDLE]?.handle === made) return clone;
  throw new InvalidTypeError(
    `${nameOf(store)}.clone() makes another ${nameOf(store)}: its constructor must pass its ` +
      "arguments on to super()",
  );
}

/** The object of this number, which the native half uses. */
export function usedStore(number) {
  return used.get(number)?.object;
}

/** The native half has one use less of an object. */
export function releaseStore(number) {
  const use = used.get(number);
  if (use === undefined) return;
  use.count -= 1;
  if (use.count === 0) used.delete(number);
}

/** What messages call a store. */
export function nameOf(object) {
  try {
    const name = object.constructor?.name;
    return typeof name === "string" && name !== "" && name !== "Object" ? name : "object";
  } catch {
    return "object";
  }
}

/** The methods that a `Store` does not have from a class of this package. */
function methodsOf(store) {
  const found = new Set();
  for (let level = store; level !== null; level = Object.getPrototypeOf(level)) {
    if (isOwnPrototype(level)) break;
    for (const name of Object.getOwnPropertyNames(level)) found.add(name);
  }
  return STORE_METHODS.filter((name) => found.has(name) && typeof store[name] === "function");
}

/** A handle that keeps the object as long as the native half uses it. */
function hold(object, methods, base) {
  let face = faces.get(object);
  if (face === undefined) {
    face = native.makeStore(nameOf(object), base);
    faces.set(object, face);
    keepAs(object, face.id);
  }
  const held = native.holdStore(face, methods.map(idlName).join(","));
  const use = used.get(face.id) ?? { object, count: 0 };
  use.count += 1;
  used.set(face.id, use);
  return held;
}

function marked(handle, interfaces) {
  return { kind: "handle", handle, typeName: handle.type, interfaces };
}
