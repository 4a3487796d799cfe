"""The names of `polyrank`, where programs written for `torch.distributed` look for them.

`import polyrank.distributed as dist` stands in for `import torch.distributed as dist`.
"""

from polyrank._c10d import *
from polyrank._backends import *
from polyrank._coalescing import *
from polyrank._coalescing import coalescing_manager as _coalescing_manager
from polyrank._compatible import *
from polyrank._core import *
from polyrank._enums import *
from polyrank._future import *
from polyrank._members import *
from polyrank._objects import *
from polyrank.distributed import device_mesh as device_mesh
from polyrank.distributed import distributed_c10d as distributed_c10d
