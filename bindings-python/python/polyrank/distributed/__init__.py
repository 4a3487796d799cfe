"""The names of `polyrank`, where programs written for `torch.distributed` look for them.

`import polyrank.distributed as dist` stands in for `import torch.distributed as dist`.
"""

# Some names are private, and for others.
# pyright: reportPrivateUsage=false

# Stands in for the class of the core: mypy takes the first of two, Python the last.
from polyrank._reconfigure import ReconfigureOptions as ReconfigureOptions
from polyrank._c10d import *
from polyrank._backends import *
from polyrank._coalescing import *
from polyrank._coalescing import CoalescingManager as _CoalescingManager
from polyrank._coalescing import coalescing_manager as _coalescing_manager
from polyrank._compatible import *
from polyrank._compatible import make_premul_sum as _make_nccl_premul_sum
from polyrank._core import *  # type: ignore[assignment]
from polyrank._enums import *
from polyrank._future import *
from polyrank._members import *
from polyrank._objects import *
from polyrank._reconfigure import *
from polyrank.distributed import device_mesh as device_mesh
from polyrank.distributed import distributed_c10d as distributed_c10d
from polyrank.distributed.distributed_c10d import (
    _all_gather_base as _all_gather_base,
    _get_process_group_name as _get_process_group_name,
    _rank_not_in_group as _rank_not_in_group,
    _reduce_scatter_base as _reduce_scatter_base,
)
