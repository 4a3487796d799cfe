"""A Python rank that makes meshes with ranks of any language; NumPy says what is right.

`run.mjs` is the same in JavaScript, `examples/device_mesh.rs` in Rust.
"""

import numpy as np
import polyrank as pr

NAMES = ("dp", "pp", "tp")


def check(mesh, rank, ranks):
    """Whether the mesh is what its ranks say, and its groups reduce along its dimensions."""
    assert mesh.shape == ranks.shape and np.array_equal(mesh.mesh, ranks), (mesh, ranks)
    place = np.argwhere(ranks == rank)
    if len(place) == 0:
        assert mesh.get_coordinate() is None
        return
    assert mesh.get_coordinate() == place[0].tolist()
    for dim, group in enumerate(mesh.get_all_groups()):
        index = tuple(place[0])
        line = ranks[(*index[:dim], slice(None), *index[dim + 1 :])]
        assert list(group.ranks()) == line.tolist()
        assert mesh.get_local_rank(dim) == group.rank() == index[dim]
        total = np.array([rank + 1])
        group.allreduce(total).wait()
        assert total[0] == (line + 1).sum(), (total, line)


def main():
    pr.init_process_group(timeout=60)
    rank, size = pr.get_rank(), pr.get_world_size()
    shapes = [(size,), (1, size), (size, 1, 1)]
    if size % 2 == 0:
        shapes += [(2, size // 2), (size // 2, 1, 2)]
    for shape in shapes:
        names = NAMES[: len(shape)]
        mesh = pr.init_device_mesh("cpu", shape, mesh_dim_names=names)
        ranks = np.arange(size).reshape(shape)
        check(mesh, rank, ranks)
        if len(shape) == 2:
            check(mesh["pp"], rank, ranks[rank // shape[1]])
            whole = mesh.flatten("all")
            check(whole, rank, ranks.reshape(-1))
            assert mesh["all"] == whole
        groups = mesh.get_all_groups()
        assert pr.DeviceMesh.from_group(groups, "cpu", ranks, mesh_dim_names=names) == mesh
    some = np.arange(max(size, 2) - 1)[::-1]
    for ranks in (some, some.reshape(1, -1)):
        check(pr.DeviceMesh("cpu", ranks), rank, ranks)
    if size > 1:
        try:
            pr.init_device_mesh("cpu", (size,), mesh_dim_names=("x" if rank == 0 else "y",))
        except pr.InvalidArgumentError as error:
            ranks = list(range(size))
            told = f"rank 0 gave DeviceMesh('cpu', {ranks}, mesh_dim_names=['x'])"
            assert told in str(error) and "mesh_dim_names=['y']" in str(error), error
        else:
            raise AssertionError("meshes that differ were made")
    pr.destroy_process_group()
    print(f"Python rank {rank} of {size}: meshes passed", flush=True)


if __name__ == "__main__":
    main()
