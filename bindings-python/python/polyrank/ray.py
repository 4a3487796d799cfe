"""Collective groups of Ray actors by name, with the functions of `ray.util.collective`.

`import polyrank.ray as collective` stands in for `import ray.util.collective as collective` where
tensors are in host memory: NumPy arrays, PyTorch's CPU tensors, and all else that polyrank takes.
PyTorch is not needed. The driver and tasks may be ranks, too. What has no function here is a
method of `get_group_handle(name)`, which is a `polyrank.ProcessGroup`.
"""

import logging
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

from polyrank._core import (
    AlreadyInitializedError,
    DistNetworkError,
    InvalidArgumentError,
    NotInitializedError,
    ProcessGroup,
    ReduceOp,
    TCPStore,
)
from polyrank._ray_rendezvous import Deadline, Notice, Place, lead, meet, open_store, refuse

try:
    # Without its types: which there are depends on the version, and whether it is installed.
    _ray: Any = import_module("ray")
except ImportError as _error:
    raise ImportError("polyrank.ray needs Ray: pip install ray") from _error

__all__ = [
    "ReduceOp",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "init_collective_group",
    "is_group_initialized",
    "recv",
    "reduce",
    "reducescatter",
    "send",
]

_log = logging.getLogger("polyrank.ray")
#: The groups of this process by name; None while one is made.
_groups: dict[str, ProcessGroup | None] = {}
_changing = threading.Lock()
#: The stores of those that the driver is about to make.
_opened: dict[str, TCPStore] = {}
#: The limit where none is given, as for other groups.
_USUAL_TIMEOUT_S = 1800.0
#: Ray's names of backends and operators that are not ours.
_BACKENDS = {"torch_gloo": "gloo"}
_OPERATORS = {"AVERAGE": "AVG"}


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = "tcp",
    group_name: str = "default",
    gloo_timeout: int | None = None,
    *,
    timeout: float | timedelta | None = None,
) -> None:
    """Makes this process a rank of the group; all ranks call it, and return when all have.

    `timeout` is the limit of this and of each operation, 30 min unless given; 0 is none.
    `gloo_timeout` is the same in milliseconds, as Ray has it. Names belong to Ray's namespace: two
    jobs may have groups of one name. After `destroy_collective_group` the name is free again.
    """
    deadline = Deadline(_seconds(timeout, gloo_timeout))
    _reserve(rank, world_size, group_name)
    notice = Notice(_ray, group_name)
    with _reserved(group_name):
        if rank == 0:
            store, place = open_store(_ray, world_size, deadline.seconds)
            notice.put(place)
            try:
                lead(store, group_name, world_size, deadline)
            finally:
                notice.take_down(place)
        else:
            store = meet(notice, None, group_name, rank, world_size, deadline)
        _groups[group_name] = _group(store, group_name, rank, world_size, backend, deadline)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = "tcp",
    group_name: str = "default",
    gloo_timeout: int | None = None,
    *,
    timeout: float | timedelta | None = None,
) -> None:
    """Makes these actors the ranks of a group, and returns when they are; the driver calls it.

    The actors need no method for it. If one of them cannot be a rank, as it has died or is in a
    group of that name, none is, and what it raised is raised here. The rest is as for
    `init_collective_group`.
    """
    if world_size < 1 or sorted(ranks) != [*range(world_size)] or len(actors) != world_size:
        raise InvalidArgumentError(
            f"each of {world_size} ranks needs one actor: {len(actors)} actors, ranks {[*ranks]}"
        )
    for rank, actor in zip(ranks, actors):
        if not hasattr(actor, "__ray_call__"):
            raise InvalidArgumentError(f"rank {rank}: expected an actor, got {actor!r}")
    seconds = _seconds(timeout, gloo_timeout)
    first = actors[ranks.index(0)]
    place = Place(*_ray.get(first.__ray_call__.remote(_begin, world_size, group_name, seconds)))
    rest = (world_size, backend, group_name, seconds, place)
    calls: dict[Any, int] = {}
    pending, who = list[Any](), "the driver"
    try:
        for rank, actor in zip(ranks, actors):
            calls[actor.__ray_call__.remote(_become, rank, *rest)] = rank
        pending = [*calls]
        while pending:
            [ended], pending = _ray.wait(pending)
            who = f"rank {calls[ended]}"
            _ray.get(ended)
            who = "the driver"
    except BaseException as error:
        _call_off(place, f"{who} gave up: {error}", calls)
        raise


def destroy_collective_group(group_name: str = "default") -> None:
    """Leaves the group; its ranks call it when they have done their last operation."""
    with _changing:
        group = _groups.get(group_name)
        # Also one of which the driver has made rank 0, and no more.
        is_begun = _opened.pop(group_name, None) is not None
        if group is not None or is_begun:
            del _groups[group_name]
    if group is None and is_begun:
        return
    if group is None:
        _log.warning("The group '%s' does not exist.", group_name)
        return
    group.shutdown()


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process is in a group of this name."""
    with _changing:
        return _groups.get(group_name) is not None


def get_rank(group_name: str = "default") -> int:
    """This process's rank in the group; -1 if it is not in it."""
    with _changing:
        group = _groups.get(group_name)
    return -1 if group is None else group.rank()


def get_collective_group_size(group_name: str = "default") -> int:
    """The number of ranks of the group; -1 if this process is not in it."""
    with _changing:
        group = _groups.get(group_name)
    return -1 if group is None else group.size()


def get_group_handle(group_name: str = "default") -> ProcessGroup:
    """The group itself, for operations without a function here."""
    with _changing:
        group = _groups.get(group_name)
    if group is None:
        raise NotInitializedError(
            f"The collective group '{group_name}' is not initialized in the process; "
            "init_collective_group makes it a rank"
        )
    return group


def allreduce(tensor: Any, group_name: str = "default", op: Any = ReduceOp.SUM) -> None:
    """Reduces the tensor over all ranks, in place. `op` may be Ray's `ReduceOp`, too."""
    get_group_handle(group_name).allreduce(tensor, _operator(op)).wait()


def reduce(
    tensor: Any, dst_rank: int = 0, group_name: str = "default", op: Any = ReduceOp.SUM
) -> None:
    """Reduces the tensor over all ranks; `dst_rank` gets the result in place of its tensor."""
    get_group_handle(group_name).reduce(tensor, dst_rank, _operator(op)).wait()


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """All ranks get the tensor of `src_rank`, in place of theirs."""
    get_group_handle(group_name).broadcast(tensor, src_rank).wait()


def allgather(tensor_list: Sequence[Any], tensor: Any, group_name: str = "default") -> None:
    """Each tensor of the list gets that of one rank, in the order of ranks."""
    get_group_handle(group_name).allgather(tensor_list, tensor).wait()


def reducescatter(
    tensor: Any, tensor_list: Sequence[Any], group_name: str = "default", op: Any = ReduceOp.SUM
) -> None:
    """Reduces the lists of all ranks; `tensor` gets the result at this rank's place in the list."""
    get_group_handle(group_name).reduce_scatter(tensor, tensor_list, _operator(op)).wait()


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Sends the tensor to a rank, which receives it."""
    get_group_handle(group_name).send([tensor], dst_rank).wait()


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Receives into the tensor what a rank sends."""
    get_group_handle(group_name).recv([tensor], src_rank).wait()


def barrier(group_name: str = "default") -> None:
    """Waits until all ranks have come."""
    get_group_handle(group_name).barrier().wait()


def _begin(_: Any, world_size: int, name: str, seconds: float) -> Place:
    """Runs in the actor of which the driver makes rank 0, before `_become`."""
    _reserve(0, world_size, name)
    with _reserved(name, also_after=True):
        _opened[name], place = open_store(_ray, world_size, seconds)
    return place


def _become(
    _: Any, rank: int, world_size: int, backend: str, name: str, seconds: float, place: Place
) -> None:
    """Runs in an actor of which the driver makes a rank."""
    deadline = Deadline(seconds)
    if rank != 0:
        _reserve(rank, world_size, name)
    with _reserved(name):
        if rank == 0:
            store = _opened.pop(name)
            lead(store, name, world_size, deadline)
        else:
            store = meet(None, place, name, rank, world_size, deadline)
        _groups[name] = _group(store, name, rank, world_size, backend, deadline)


def _call_off(place: Place, why: str, calls: dict[Any, int]) -> None:
    """Tells those who wait for a rank that it will not come, and waits until they know. Rank 0 has
    begun, and gives the name back in its call, however late that comes.
    """
    try:
        refuse(place, why)
    except DistNetworkError:
        # There is no rank 0 any more, and they notice it.
        pass
    for call, rank in calls.items():
        if rank != 0:
            _ray.cancel(call)
    others = [call for call, rank in calls.items() if rank != 0]
    _ray.wait(others, num_returns=len(others))


def _group(
    store: TCPStore, name: str, rank: int, world_size: int, backend: str, deadline: Deadline
) -> ProcessGroup:
    backend = _BACKENDS.get(backend.lower(), backend.lower())
    return ProcessGroup(store, rank, world_size, backend, deadline.seconds, group_name=name)


def _reserve(rank: int, world_size: int, name: str) -> None:
    """Nobody else in this process makes a group of this name from now on."""
    if not name:
        raise InvalidArgumentError("group_name must not be empty")
    if not 0 <= rank < world_size:
        raise InvalidArgumentError(f"rank {rank} is not one of {world_size}")
    with _changing:
        if name in _groups:
            raise AlreadyInitializedError(
                f"this process is in a group '{name}' already, or about to be; "
                f"destroy_collective_group('{name}') leaves it"
            )
        _groups[name] = None


@contextmanager
def _reserved(name: str, also_after: bool = False) -> Generator[None, None, None]:
    """Gives the name back if no group was made, or something was raised."""
    is_kept = False
    try:
        yield
        is_kept = also_after
    finally:
        with _changing:
            if _groups[name] is None and not is_kept:
                del _groups[name]


def _seconds(timeout: float | timedelta | None, gloo_timeout: int | None) -> float:
    if timeout is None:
        return _USUAL_TIMEOUT_S if gloo_timeout is None else gloo_timeout / 1000
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def _operator(op: Any) -> ReduceOp:
    """An operator of ours, or that of the same name of Ray's."""
    if isinstance(op, ReduceOp):
        return op
    name = str(getattr(op, "name", op))
    operator = getattr(ReduceOp, _OPERATORS.get(name, name), None)
    if not isinstance(operator, ReduceOp):
        raise InvalidArgumentError(f"op: expected a ReduceOp, got {op!r}")
    return operator
