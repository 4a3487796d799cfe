"""The names of `torch.distributed.distributed_c10d`: those of `polyrank.distributed`, and those
that programs take from that module although they are private there.
"""

# The names are private, and for others.
# pyright: basic, reportWildcardImportFromLibrary=false

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from polyrank import _core
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


def __getattr__(name: str) -> Any:
    """`_backend` is the name of the default group's backend."""
    if name == "_backend":
        return _core.get_backend() if _core.is_initialized() else Backend.UNDEFINED
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _rank_not_in_group(group: ProcessGroup | NonGroupMember | None) -> bool:
    """Whether this process is not a member of `group`."""
    return group is GroupMember.NON_GROUP_MEMBER


def _check_default_pg() -> None:
    """Raises if there is no default group."""
    _core.default_group()


def _get_default_store() -> Store:
    """The store of the default group."""
    return _core.default_group().get_group_store()


def _get_group_size(group: ProcessGroup | None) -> int:
    """The number of ranks of `group`; none: of the default group."""
    return (_core.default_group() if group is None else group).size()


def _get_group_rank(group: ProcessGroup, rank: int) -> int:
    """The rank in `group` of a global rank."""
    return _core.get_group_rank(group, rank)


def _get_global_rank(group: ProcessGroup, rank: int) -> int:
    """The global rank of a rank in `group`."""
    return _core.get_global_rank(group, rank)


def _new_process_group_helper(
    group_size: int,
    group_rank: int,
    global_ranks_in_group: list[int],
    backend: str,
    store: Store,
    group_name: str | None = None,
    timeout: timedelta | None = None,
) -> tuple[ProcessGroup, None]:
    """A group over `store`, which is not registered, and nothing, as in c10d."""
    if global_ranks_in_group and len(global_ranks_in_group) != group_size:
        raise ValueError("there must be as many global ranks as the group has")
    group = ProcessGroup(store, group_rank, group_size, backend, timeout, group_name)
    return group, None


def _all_gather_base(
    output_tensor: Any,
    input_tensor: Any,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """The former name of `all_gather_single`, which it warns about."""
    _warn("_all_gather_base", "all_gather_single")
    return _core.all_gather_single(output_tensor, input_tensor, group, async_op)


def _reduce_scatter_base(
    output: Any,
    input: Any,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """The former name of `reduce_scatter_single`, which it warns about."""
    _warn("_reduce_scatter_base", "reduce_scatter_single")
    return _core.reduce_scatter_single(output, input, op, group, async_op)


def _warn(former: str, now: str) -> None:
    text = f"`{former}` is deprecated, please use `{now}` instead"
    warnings.warn(text, FutureWarning, stacklevel=3)


def _get_process_group_name(pg: ProcessGroup) -> str:
    """The name of a group."""
    return pg.group_name


def _get_pg_default_device(group: ProcessGroup | None = None) -> str:
    """The kind of device of a group's tensors: `cpu`, if a backend serves that."""
    config = BackendConfig(_core.get_backend_config(group)).device_backend_map
    return "cpu" if "cpu" in config else next(iter(config))


class _ByGroup:
    """What is looked up by a group, in place of a dict. The groups are not listed."""

    def __init__(self, find: Callable[[ProcessGroup], Any]) -> None:
        self._find = find

    def __getitem__(self, group: ProcessGroup) -> Any:
        if not isinstance(group, ProcessGroup):
            raise KeyError(group)
        try:
            return self._find(group)
        except InvalidGroupError:
            raise KeyError(group) from None

    def get(self, group: ProcessGroup, default: Any = None) -> Any:
        """What is known of a group, or `default` of one that is not there."""
        try:
            return self[group]
        except KeyError:
            return default

    def __contains__(self, group: object) -> bool:
        return self.get(group) is not None  # type: ignore[arg-type]

    __iter__ = None


def _ranks_in_group(group: ProcessGroup) -> dict[int, int]:
    ranks = _core.get_process_group_ranks(group)
    return {rank: place for place, rank in enumerate(ranks)}


class _World:
    """What c10d keeps of its groups, to be read. Of a group: its backend and its store, its name,
    its ranks in the group by global rank, its backends by kind of device."""

    pg_map = _ByGroup(lambda group: (_core.get_backend(group), group.get_group_store()))
    pg_names = _ByGroup(lambda group: _core.get_backend(group) and group.group_name)
    pg_group_ranks = _ByGroup(_ranks_in_group)
    pg_backend_config = _ByGroup(_core.get_backend_config)

    @property
    def default_pg(self) -> ProcessGroup | None:
        """The default group; None before `init_process_group`."""
        return GroupMember.WORLD

    @property
    def group_count(self) -> int:
        """How many groups this process made and has not destroyed."""
        return _core.get_pg_count()


_world = _World()
