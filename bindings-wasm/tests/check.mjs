// What cases are checked with, in Node and in browsers alike. Knows nothing of polyrank.

/** Fails unless both are the same by their elements and properties. */
export function equal(actual, expected, what = "value") {
  const [left, right] = [shown(actual), shown(expected)];
  if (left !== right) throw new Error(`${what}: ${left}, expected ${right}`);
}

/** Fails unless `condition` holds. */
export function ok(condition, what) {
  if (!condition) throw new Error(what);
}

/** The error of a call or of a promise, which must be of this kind; its text must have `text`. */
export async function fails(kind, text, act) {
  let came;
  try {
    came = await (typeof act === "function" ? act() : act);
  } catch (error) {
    ok(error.kind === kind, `${error.kind}, expected ${kind}: ${error.stack}`);
    ok(error.message.includes(text), `"${error.message}" says nothing of "${text}"`);
    return error;
  }
  throw new Error(`${shown(came)} came, expected ${kind}`);
}

/** A text that is the same for the same content: of typed arrays too, and of large integers. */
function shown(value) {
  return JSON.stringify(value, (_, item) => {
    if (typeof item === "bigint") return `${item}n`;
    if (ArrayBuffer.isView(item) && !(item instanceof DataView)) {
      return [item.constructor.name, ...item].map(String);
    }
    return typeof item === "number" && !Number.isFinite(item) ? String(item) : item;
  });
}
