// The native half of the package and the platform, as the package's own entry installs them.
// `interface Native` is written down in native.d.ts. Knows nothing of calls.

/** @type {import("./native.js").Native} */
export let native;

/** @type {import("./native.js").Platform} */
export let platform;

const waiting = [];

/** Sets the native half and the platform; once, before the first call. */
export function install(nativeHalf, platformBelow) {
  native = nativeHalf;
  platform = platformBelow;
  for (const callback of waiting.splice(0)) callback();
}

/** Calls `callback` when there is a native half. */
export function whenInstalled(callback) {
  if (native) callback();
  else waiting.push(callback);
}
