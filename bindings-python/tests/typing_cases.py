"""Calls as type checkers must see them: checked by mypy and pyright, never run.

A line with an `ignore` must be an error: unused ones are reported.
"""

from datetime import timedelta

import numpy as np
from typing_extensions import assert_type

import polyrank
import polyrank.distributed as dist
from polyrank import AllreduceOptions, ProcessGroup, ReduceOp, Store, Work
from polyrank.distributed.device_mesh import DeviceMesh, init_device_mesh


def overloads(group: ProcessGroup) -> None:
    tensor = np.zeros(3)
    assert_type(group.allreduce(tensor), Work)
    assert_type(group.allreduce([tensor]), Work)
    assert_type(group.allreduce([tensor], AllreduceOptions()), Work)
    assert_type(group.allreduce(tensor, ReduceOp.MAX, timedelta(seconds=1)), Work)
    assert_type(group.allreduce(tensor, op=ReduceOp.MAX, timeout=1.5), Work)
    assert_type(group.broadcast(tensor, 0), Work)
    assert_type(group.allgather([tensor, tensor], tensor), Work)
    assert_type(group.barrier(), Work)
    assert_type(group.rank(), int)
    assert_type(group.ranks(), list[int])
    assert_type(group.split_group([0, 1]), ProcessGroup | None)
    group.allreduce("text")  # type: ignore[arg-type]  # pyright: ignore
    group.allreduce(tensor, "SUM")  # type: ignore[call-overload]  # pyright: ignore
    group.broadcast(tensor)  # type: ignore[call-overload]  # pyright: ignore


async def work(work: Work) -> None:
    assert_type(work.wait(), bool)
    assert_type(work.wait(timeout=1), bool)
    assert_type(await work, bool)
    work.wait("soon")  # type: ignore[arg-type]  # pyright: ignore


def stores(store: Store) -> None:
    assert_type(store.get("key"), bytes)
    assert_type(store.add("key", 1), int)
    assert_type(store.multi_get(["a"]), list[bytes])
    assert_type(polyrank.TCPStore("localhost", 0).port, int)
    store.set("key", 1)  # type: ignore[arg-type]  # pyright: ignore


def functions() -> None:
    assert_type(dist.get_rank(), int)
    dist.init_process_group("tcp", timeout=timedelta(minutes=1))
    dist.all_reduce(np.zeros(2), polyrank.ReduceOp.SUM)
    try:
        dist.barrier()
    except polyrank.RankFailedError as error:
        assert_type(error.rank, int | None)
    except polyrank.DistBackendError as error:
        assert_type(error.backend, str | None)
        assert_type(error.message, str)


def numbers(group: ProcessGroup) -> None:
    assert_type(group.get_error(), polyrank.WorkResult)
    assert_type(group.get_backend("cpu").backend_type, polyrank.BackendType)


def handles(group: ProcessGroup) -> None:
    names = {group.get_reconfigure_handle()}
    group.reconfigure(polyrank.ReconfigureOptions(uuid=1, handles=names))
    polyrank.ReconfigureOptions(1, dict.fromkeys(names).keys(), ordered=True)
    polyrank.ReconfigureOptions(1, [1])  # type: ignore[list-item]  # pyright: ignore


def meshes(group: ProcessGroup) -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert_type(mesh, DeviceMesh)
    assert_type(mesh["dp", "tp"], DeviceMesh)
    assert_type(mesh.shape, tuple[int, ...])
    assert_type(mesh.mesh_dim_names, tuple[str, ...] | None)
    assert_type(mesh.get_coordinate(), list[int] | None)
    assert_type(mesh.get_group("dp"), ProcessGroup)
    assert_type(mesh.get_local_rank(mesh_dim=0), int)
    assert_type(DeviceMesh.from_group([group], "cpu", np.arange(2)), DeviceMesh)
    DeviceMesh("cpu", [[0, 1]], mesh_dim_names=["a", "b"], _init_backend=False)
    with mesh as entered:
        assert_type(entered, DeviceMesh)
    mesh[0]  # type: ignore[index]  # pyright: ignore
