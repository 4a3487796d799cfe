// What Node's `console.log` and `util.inspect` show of groups, stores and tensors, and what `String`
// makes of them: what a person wants to know. What is native says it itself, in the words of all
// languages.

import * as classes from "../generated/classes.js";
import { CudaTensor } from "./cuda.js";
import { handleOf } from "./handles.js";
import { NonGroupMember } from "./members.js";
import { Tensor } from "./tensors.js";
import { INSPECT } from "./work.js";

/** Has objects of a class shown as what `text` gives for one. */
function show(made, text) {
  const value = function value() {
    return text(this);
  };
  for (const name of [INSPECT, "toString"]) {
    Object.defineProperty(made.prototype, name, { value, configurable: true, writable: true });
  }
}

/** What the native half says of the object; the name of its class where it has none. */
const native = (object) => handleOf(object)?.describe() ?? object[Symbol.toStringTag];

show(classes.ProcessGroup, native);
show(classes.Store, native);
show(Tensor, ({ dtype, shape }) => `Tensor(${dtype}, [${shape.join(", ")}])`);
show(CudaTensor, ({ dtype, shape, device }) => {
  return `CudaTensor(${dtype}, [${shape.join(", ")}], ${device})`;
});
show(NonGroupMember, () => "NonGroupMember()");
