"""Functions of c10d that the IDL has no words for: those of earlier versions, with several tensors
a process, as one for each of its devices, and those that are methods of groups here.
"""

# Tensors are of any library.
# pyright: basic

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from polyrank import _core
from polyrank._core import (
    BroadcastOptions,
    GatherOptions,
    InvalidArgumentError,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    Store,
    Work,
)
from polyrank._enums import Backend
from polyrank._members import GroupMember

__all__ = [
    "SHRINK_ABORT",
    "SHRINK_DEFAULT",
    "BackendConfig",
    "ProcessGroupGloo",
    "ProcessGroupMPI",
    "all_gather_multigpu",
    "all_reduce_multigpu",
    "broadcast_multigpu",
    "dist_backend",
    "gather_into_tensor",
    "gather_single",
    "reduce_multigpu",
    "reduce_scatter_multigpu",
    "shrink_group",
    "supports_complex",
]

#: `shrink_group` waits for what is in flight.
SHRINK_DEFAULT = 0
#: `shrink_group` fails what is in flight.
SHRINK_ABORT = 1

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


def gather_single(
    tensor: Any,
    gather_tensor: Any = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """`dst` gets every rank's tensor, one after the other in `gather_tensor`, which only it passes.
    Rank 0 unless given."""
    if (members := _members(group)) is None:
        return None
    if dst is not None and group_dst is not None:
        raise InvalidArgumentError("gather_single() takes 'dst' or 'group_dst', not both")
    if group_dst is None:
        group_dst = _core.get_group_rank(members, 0 if dst is None else dst)
    options = GatherOptions(root_rank=group_dst)
    return _waited(members.gather_single(gather_tensor, tensor, options), async_op)


gather_into_tensor = gather_single


def shrink_group(
    ranks_to_exclude: Iterable[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = SHRINK_DEFAULT,
    pg_options: None = None,
) -> ProcessGroup:
    """Goes on without some ranks of the group, which the others all call: its method
    `shrink_group`. What it returns is the group itself, which has the other members then."""
    if shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise InvalidArgumentError(
            f"shrink_group() takes SHRINK_DEFAULT or SHRINK_ABORT, not {shrink_flags!r}"
        )
    if pg_options is not None:
        raise InvalidArgumentError(
            "shrink_group() takes no 'pg_options': the group keeps those that it has"
        )
    if (members := _members(group)) is None:
        raise InvalidArgumentError(
            "shrink_group() is called by members of the group; this rank is none"
        )
    if shrink_flags == SHRINK_ABORT:
        members.revoke()
    members.shrink_group(list(ranks_to_exclude)).wait()
    return members


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether tensors of complex numbers can be reduced so."""
    return reduceOp.name in ("SUM", "AVG", "PREMUL_SUM", "CUSTOM")


class BackendConfig:
    """Which backend serves which kind of device, by what `init_process_group` takes."""

    def __init__(self, backend: str) -> None:
        self.device_backend_map: dict[str, str] = {}
        named = str(backend).lower()
        if named == Backend.UNDEFINED:
            named = "cpu:tcp"
            if "cuda:nccl" in _core.recommend_backend()["backend"]:
                named = "cpu:tcp,cuda:nccl"
        if ":" not in named:
            name = Backend(named)
            devices = Backend.backend_capability[name]
            self.device_backend_map = dict.fromkeys(devices, name)
            return
        for pair in named.split(","):
            device, _, of_device = pair.strip().partition(":")
            if device not in Backend.default_device_backend_map or not of_device:
                raise InvalidArgumentError(
                    f"cannot read {pair!r} of the backend {backend!r}. Expected a name as 'tcp', "
                    "or pairs as 'cpu:tcp,cuda:nccl'"
                )
            if device in self.device_backend_map:
                raise InvalidArgumentError(f"the backend {backend!r} gives device {device!r} twice")
            self.device_backend_map[device] = Backend(of_device)

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())

    def get_device_backend_map(self) -> dict[str, str]:
        """The backends' names by kind of device."""
        return self.device_backend_map


class ProcessGroupGloo:
    """Where c10d makes groups over Gloo: `ProcessGroupGloo(store, rank, size)` is a `ProcessGroup`
    over TCP."""

    def __new__(  # type: ignore[misc]
        cls, store: Store, rank: int, size: int, timeout: timedelta | float | None = None
    ) -> ProcessGroup:
        """The group of the ranks that meet in `store`."""
        return ProcessGroup(store, rank, size, "gloo", timeout)


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
