"""One process group, ranks in any language: c10d's collectives without PyTorch.

The object API (`ProcessGroup`, `Work`, the stores) and the free functions over the default group
(`init_process_group`, `all_reduce`, ...) are all here; `polyrank.distributed` has the same names
for programs that were written for `torch.distributed`. Tensors are NumPy arrays, objects with the
buffer protocol, or objects with `__dlpack__`. Importing starts no thread.
"""

import typing as _typing

from polyrank import _core
from polyrank import _call_site as _call_site
from polyrank import _log as _log
from polyrank import device_mesh as device_mesh
from polyrank import distributed as distributed
# Stands in for the class of the core: mypy takes the first of two, Python the last.
from polyrank._reconfigure import ReconfigureOptions as ReconfigureOptions
from polyrank._backends import *
from polyrank._c10d import *
from polyrank._coalescing import *
from polyrank._coalescing import coalescing_manager as _coalescing_manager
from polyrank._compatible import *
from polyrank._compatible import make_premul_sum as _make_nccl_premul_sum
from polyrank._core import *  # type: ignore[assignment]
from polyrank._enums import *
from polyrank._errors import *
from polyrank._future import *
from polyrank._members import *
from polyrank._memory import *
from polyrank._objects import *
from polyrank._reconfigure import *


if _typing.TYPE_CHECKING:
    from polyrank.multiprocessing import spawn as spawn


def __getattr__(name: str) -> _typing.Any:
    # Few programs start others, and what they need takes a while to import.
    if name == "spawn":
        from polyrank.multiprocessing import spawn

        return spawn
    raise AttributeError(f"module 'polyrank' has no attribute '{name}'")


def _add_backend_types() -> None:
    """Puts the kinds of backends where c10d has them."""
    setattr(ProcessGroup, "BackendType", BackendType)
    for kind in BackendType:
        setattr(ProcessGroup, kind.name, kind)


_add_backend_types()

__version__: str = getattr(_core, "__version__")
