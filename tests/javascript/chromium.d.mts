// The types of chromium.mjs, for tests that are written in TypeScript.

/** The path of a browser: what the variable CHROMIUM names, or the first that is installed. */
export function findChromium(): string | undefined;
