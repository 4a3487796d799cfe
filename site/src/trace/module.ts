// Loads the module that reads flight recorders' files. Knows nothing of what is shown.

import init, { Trace } from "./wasm/trace.js";

await init();

export { Trace };
