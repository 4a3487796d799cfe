// Meshes as only JavaScript has them: arrays of ranks in its forms, and the current mesh.

import { InvalidArgumentError, InvalidTypeError } from "../generated/errors.js";
import { invoke, invokeAsync } from "./calls.js";
import { handleOf } from "./handles.js";
import { platform } from "./native.js";
import { expectAtMost, expectFunction, isPlain, told } from "./options.js";
import { Tensor } from "./tensors.js";

/** Makes a mesh. */
export function create(spec, given) {
  return invokeAsync(spec, null, given.map(plain));
}

/** Makes a mesh of groups that exist. */
export function fromGroup(spec, given) {
  return invoke(spec, null, given.map(plain));
}

/** Runs `callback` with `mesh` as the current mesh, through everything that it awaits. */
export function withDeviceMesh(mesh, callback) {
  expectAtMost(2, "withDeviceMesh", arguments.length);
  if (handleOf(mesh)?.type !== "DeviceMesh") {
    throw new InvalidTypeError("withDeviceMesh(): 'mesh' must be a DeviceMesh");
  }
  expectFunction("withDeviceMesh", "callback", callback);
  return platform.currentMesh.run(mesh, callback);
}

/** The mesh of the innermost `withDeviceMesh`. */
export function currentDeviceMesh() {
  expectAtMost(0, "currentDeviceMesh", arguments.length);
  const mesh = platform.currentMesh.get();
  if (mesh !== undefined) return mesh;
  throw new InvalidArgumentError("No device mesh is currently active!", {});
}

/** Arrays as nested arrays, and of the options as well; names of dimensions are not respelled. */
function plain(value) {
  if (ArrayBuffer.isView(value)) return Array.from(value, Number);
  if (value instanceof Tensor) {
    return nested(value.data, value.shape, value.strides, value.offset);
  }
  if (!isPlain(value)) return value;
  const { mesh, backendOverride, ...others } = value;
  if (mesh !== undefined) others.mesh = plain(mesh);
  if ((backendOverride ?? null) !== null) {
    if (!isPlain(backendOverride)) {
      throw new InvalidTypeError(
        "'backendOverride' must be an object, with a backend for each of some dimensions, not " +
          told(backendOverride),
      );
    }
    others.backendOverride = Object.entries(backendOverride).map(([dim, backend]) => {
      return [/^-?\d+$/.test(dim) ? Number(dim) : dim, backend];
    });
  }
  return others;
}

function nested(data, shape, strides, offset) {
  const [length, ...inner] = shape;
  if (length === undefined) return Number(data[offset]);
  const [step, ...steps] = strides;
  return Array.from({ length }, (_, at) => nested(data, inner, steps, offset + at * step));
}
