"""One process group, ranks in any language: c10d's collectives without PyTorch.

The object API (`ProcessGroup`, `Work`, the stores) and the free functions over the default group
(`init_process_group`, `all_reduce`, ...) are all here; `polyrank.distributed` has the same names
for programs that were written for `torch.distributed`. Tensors are NumPy arrays, objects with the
buffer protocol, or objects with `__dlpack__`. Importing starts no thread.
"""

from polyrank import _core
from polyrank import device_mesh as device_mesh
from polyrank import distributed as distributed
from polyrank._backends import *
from polyrank._coalescing import *
from polyrank._coalescing import coalescing_manager as _coalescing_manager
from polyrank._compatible import *
from polyrank._core import *
from polyrank._enums import *
from polyrank._future import *
from polyrank._members import *
from polyrank._memory import *
from polyrank._objects import *

# Where c10d has them.
setattr(ProcessGroup, "BackendType", BackendType)
for _kind in BackendType:
    setattr(ProcessGroup, _kind.name, _kind)
del _kind

__version__: str = getattr(_core, "__version__")
