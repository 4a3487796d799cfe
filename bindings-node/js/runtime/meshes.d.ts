// Declarations of meshes that exist only in JavaScript, written by hand; `types.d.ts` exports them.

import type { BackendOptions, DeviceMesh, InvalidArgumentError } from "../../index.js";
import type { Tensor } from "./types.js";

/** Nested arrays of global ranks, of equal lengths. */
export type NestedRanks = readonly (number | NestedRanks)[];

/** The ranks of a mesh: nested arrays, an array of one dimension, or one that has a shape. */
export type MeshLike = NestedRanks | ArrayBufferView | Tensor;

/** What other backends the groups of some dimensions of a mesh have, by index or name. */
export interface BackendOverride {
  readonly [dimension: string | number]:
    | string
    | BackendOptions
    | readonly [string, BackendOptions];
}

/**
 * Runs `callback` with `mesh` as the current mesh, and returns its result. In Node the mesh stays
 * the current one through everything that the callback awaits; in a browser until the callback
 * awaits for the first time.
 */
export function withDeviceMesh<R>(mesh: DeviceMesh, callback: () => R): R;

/**
 * The mesh of the innermost {@link withDeviceMesh} that this call is in.
 *
 * @throws {@link InvalidArgumentError}
 */
export function currentDeviceMesh(): DeviceMesh;
