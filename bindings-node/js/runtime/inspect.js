// What Node's `console.log` and `util.inspect` show of groups, stores and tensors, and what
// `String` makes of them: a short description for debugging. That of a native object comes from the
// core, and is the same in all languages.

import * as classes from "../generated/classes.js";
import { CudaTensor } from "./cuda.js";
import { handleOf } from "./handles.js";
import { NonGroupMember } from "./members.js";
import { Tensor } from "./tensors.js";
import { INSPECT } from "./work.js";

/** Sets how instances of `cls` are shown: as what `describe` returns for one. */
function setInspect(cls, describe) {
  const value = function value() {
    return describe(this);
  };
  for (const name of [INSPECT, "toString"]) {
    Object.defineProperty(cls.prototype, name, { value, configurable: true, writable: true });
  }
}

/** The native half's description of the object; the name of its class where it has none. */
const native = (object) => handleOf(object)?.describe() ?? object[Symbol.toStringTag];

setInspect(classes.ProcessGroup, native);
setInspect(classes.Store, native);
setInspect(classes.DeviceMesh, native);
setInspect(classes.LighthouseServer, native);
setInspect(classes.Manager, native);
setInspect(classes.Topology, native);
setInspect(Tensor, ({ dtype, shape }) => `Tensor(${dtype}, [${shape.join(", ")}])`);
setInspect(CudaTensor, ({ dtype, shape, device }) => {
  return `CudaTensor(${dtype}, [${shape.join(", ")}], ${device})`;
});
setInspect(NonGroupMember, () => "NonGroupMember()");
