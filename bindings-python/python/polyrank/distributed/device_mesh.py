"""The names of `torch.distributed.device_mesh`: meshes of ranks."""

# One name is private, and for others.
# pyright: reportPrivateUsage=false

from polyrank.device_mesh import *
from polyrank.device_mesh import _mesh_resources as _mesh_resources
