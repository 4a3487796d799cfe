"""Meshes: ranks in an n-dimensional array, and a group along each dimension.

`polyrank.distributed.device_mesh` has the same names, as `torch.distributed.device_mesh` has.
"""

from polyrank._core import DeviceMesh as DeviceMesh
from polyrank._core import MeshDimensionError
from polyrank._core import current_device_mesh as current_device_mesh
from polyrank._core import extend_device_mesh as extend_device_mesh
from polyrank._core import init_device_mesh as init_device_mesh

__all__ = ["DeviceMesh", "current_device_mesh", "extend_device_mesh", "init_device_mesh"]


class _MeshResources:
    """What programs take from torch's `_mesh_resources`, although it is private there."""

    def get_current_mesh(self) -> DeviceMesh:
        """The mesh of the innermost `with` block."""
        return current_device_mesh()

    def get_root_mesh(self, device_mesh: DeviceMesh) -> DeviceMesh:
        """The mesh that a part was sliced out of or flattened from; else itself."""
        return device_mesh.get_root_mesh()

    def get_mesh_dim_by_name(self, device_mesh: DeviceMesh, mesh_dim_name: str) -> int:
        """The index of a dimension. One that `flatten` gave has none."""
        names = device_mesh.mesh_dim_names or ()
        if mesh_dim_name not in names:
            raise MeshDimensionError(
                f"the mesh has no dimension '{mesh_dim_name}'; its dimensions are {list(names)}"
            )
        return names.index(mesh_dim_name)


_mesh_resources = _MeshResources()
