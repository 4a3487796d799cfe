"""Functions that c10d had in earlier versions: several tensors a process, as one for each of its
devices. They are the list forms of the methods of groups.
"""

# Tensors are of any library.
# pyright: basic

from collections.abc import Sequence
from typing import Any

from polyrank import _core
from polyrank._core import (
    BroadcastOptions,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    Work,
)
from polyrank._enums import Backend
from polyrank._members import GroupMember

__all__ = [
    "ProcessGroupMPI",
    "all_gather_multigpu",
    "all_reduce_multigpu",
    "broadcast_multigpu",
    "dist_backend",
    "reduce_multigpu",
    "reduce_scatter_multigpu",
]

#: The former name of `Backend`.
dist_backend = Backend


def broadcast_multigpu(
    tensor_list: Sequence[Any],
    src: int,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    src_tensor: int = 0,
) -> Work | None:
    """All tensors of all ranks get tensor `src_tensor` of the global rank `src`."""
    if (members := _members(group)) is None:
        return None
    root = _core.get_group_rank(members, src)
    options = BroadcastOptions(root_rank=root, root_tensor=src_tensor)
    return _waited(members.broadcast(list(tensor_list), options), async_op)


def all_reduce_multigpu(
    tensor_list: Sequence[Any],
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Reduces all tensors of all ranks; each of them gets the result."""
    if (members := _members(group)) is None:
        return None
    options = _core.AllreduceOptions(reduce_op=op)
    return _waited(members.allreduce(list(tensor_list), options), async_op)


def reduce_multigpu(
    tensor_list: Sequence[Any],
    dst: int,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    dst_tensor: int = 0,
) -> Work | None:
    """Reduces all tensors of all ranks; tensor `dst_tensor` of the global rank `dst` gets the
    result."""
    if (members := _members(group)) is None:
        return None
    root = _core.get_group_rank(members, dst)
    options = ReduceOptions(reduce_op=op, root_rank=root, root_tensor=dst_tensor)
    return _waited(members.reduce(list(tensor_list), options), async_op)


def all_gather_multigpu(
    output_tensor_lists: Sequence[Sequence[Any]],
    input_tensor_list: Sequence[Any],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Each list of outputs gets all tensors of all ranks, those of rank 0 first."""
    if (members := _members(group)) is None:
        return None
    outputs = [list(tensors) for tensors in output_tensor_lists]
    return _waited(members.allgather(outputs, list(input_tensor_list)), async_op)


def reduce_scatter_multigpu(
    output_tensor_list: Sequence[Any],
    input_tensor_lists: Sequence[Sequence[Any]],
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Reduces the lists of all ranks place by place; output `i` of a rank gets the result of its
    place, where the places of rank 0 come first."""
    if (members := _members(group)) is None:
        return None
    inputs = [list(tensors) for tensors in input_tensor_lists]
    options = _core.ReduceScatterOptions(reduce_op=op)
    return _waited(members.reduce_scatter(list(output_tensor_list), inputs, options), async_op)


class ProcessGroupMPI:
    """Where c10d makes groups over MPI. A group itself is a `ProcessGroup`."""

    @staticmethod
    def create(ranks: Sequence[int] = ()) -> ProcessGroup | None:
        """The group over MPI of these ranks, or of all; None on a rank that is not in it.

        All ranks call it. The first call begins the default group, if there is none.
        """
        if not _core.is_initialized():
            _core.init_process_group(backend="mpi")
        if not ranks:
            return _core.default_group()
        group = _core.new_group(list(ranks), backend="mpi")
        return group if isinstance(group, ProcessGroup) else None


def _members(group: ProcessGroup | None) -> ProcessGroup | None:
    outside: Any = GroupMember.NON_GROUP_MEMBER
    if group is outside:
        return None
    return _core.default_group() if group is None else group


def _waited(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None
