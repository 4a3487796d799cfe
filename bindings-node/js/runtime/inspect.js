// What Node's `console.log` and `util.inspect` show of groups, stores and tensors: what a person
// wants to know of them. Knows their public attributes alone.

import * as classes from "../generated/classes.js";
import { CudaTensor } from "./cuda.js";
import { NonGroupMember } from "./members.js";
import { Tensor } from "./tensors.js";
import { INSPECT } from "./work.js";

/** Has objects of a class shown as its name with what `parts` gives for one. */
function show(made, parts) {
  const value = function value(_depth, options, inspect) {
    const shown = parts(this, (other) => inspect(other, options));
    return `${this[Symbol.toStringTag]}(${shown.join(", ")})`;
  };
  Object.defineProperty(made.prototype, INSPECT, { value, configurable: true });
}

const waiting = ({ timeout }) => `timeout ${timeout} ms`;

show(classes.ProcessGroup, (group) => [
  group.groupName,
  `rank ${group.rank()} of ${group.size()}`,
  group.getBackendName(),
]);
show(classes.Store, (store) => [waiting(store)]);
show(classes.FileStore, (store) => [JSON.stringify(store.path), waiting(store)]);
show(classes.PrefixStore, (store, shown) => {
  return [JSON.stringify(store.prefix), shown(store.underlyingStore)];
});
show(classes.TCPStore, (store) => [`${store.host}:${store.port}`, waiting(store)]);
show(classes.WebSocketStore, (store) => [store.url, waiting(store)]);
show(Tensor, ({ dtype, shape }) => [dtype, `[${shape.join(", ")}]`]);
show(CudaTensor, ({ dtype, shape, device }) => [dtype, `[${shape.join(", ")}]`, device]);
show(NonGroupMember, () => []);
