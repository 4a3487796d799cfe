"""The names of `torch.distributed.distributed_c10d`: those of `polyrank.distributed`, and those
that programs take from that module although they are private there.
"""

# The names are private, and for others.
# pyright: basic, reportWildcardImportFromLibrary=false

from datetime import timedelta
from typing import Any

from polyrank import _core
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
