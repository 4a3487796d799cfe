"""What a program asks of its surroundings, the names of backends, and what errors say."""

import os
import queue
import re
import subprocess
import sys

import numpy as np
import polyrank
import polyrank.distributed as dist
import pytest
from over_store import LIMIT


def test_a_launcher_says_that_it_started_the_process(monkeypatch):
    for name in ["POLYRANK_RUN_ID", "TORCHELASTIC_RUN_ID", "LOCAL_RANK"]:
        monkeypatch.delenv(name, raising=False)
    assert dist.is_available()
    assert not dist.is_torchelastic_launched() and not polyrank.is_launched()
    assert dist.get_node_local_rank(fallback_rank=3) == 3
    with pytest.raises(polyrank.RendezvousError, match="fallback_rank"):
        dist.get_node_local_rank()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert dist.is_torchelastic_launched() and polyrank.is_launched()
    assert dist.get_node_local_rank(3) == 2


def test_backends_have_the_names_and_numbers_of_c10d():
    names = {it.name: it.value for it in polyrank.Backend}
    expected = {
        "UNDEFINED": "undefined",
        "GLOO": "gloo",
        "NCCL": "nccl",
        "UCC": "ucc",
        "MPI": "mpi",
        "XCCL": "xccl",
        "TCP": "tcp",
        "WEBSOCKET": "websocket",
        "FAKE": "fake",
    }
    # Those that the program registered come beside them.
    assert expected.items() <= names.items()
    assert [polyrank.Backend.NCCL, polyrank.Backend.MPI] == ["nccl", "mpi"]
    assert [polyrank.Backend.UCC, polyrank.Backend.XCCL] == ["ucc", "xccl"]
    assert [polyrank.Backend.WEBSOCKET, polyrank.Backend.FAKE] == ["websocket", "fake"]
    kinds = polyrank.BackendType
    assert [kinds.UNDEFINED, kinds.GLOO, kinds.NCCL, kinds.UCC] == [0, 1, 2, 3]
    assert [kinds.MPI, kinds.XCCL, kinds.CUSTOM] == [4, 5, 6]


def test_a_backend_is_available_or_there_is_a_reason():
    answers = {
        "tcp": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
        "ucc": dist.is_ucc_available(),
        "xccl": dist.is_xccl_available(),
    }
    assert answers["tcp"] and not answers["ucc"] and not answers["xccl"]
    for name, is_available in answers.items():
        assert dist.is_backend_available(name) == is_available
        assert (dist.backend_unavailable_reason(name) == "") == is_available


class TorchDevice:
    """What a device of PyTorch says of itself."""

    def __init__(self, kind, index=None):
        self.text = kind if index is None else f"{kind}:{index}"

    def __str__(self):
        return self.text


def test_a_kind_of_device_has_its_backend():
    assert dist.get_default_backend_for_device("cpu") == "tcp"
    assert dist.get_default_backend_for_device("cuda:1") == "nccl"
    for device, backend in ((TorchDevice("cpu"), "tcp"), (TorchDevice("cuda", 1), "nccl")):
        assert dist.get_default_backend_for_device(device) == backend
    for wrong in ("tpu", TorchDevice("tpu"), None):
        text = re.escape(f"'{wrong}' is not a device; expected one of cpu")
        with pytest.raises(polyrank.InvalidArgumentError, match=text):
            dist.get_default_backend_for_device(wrong)


WITHOUT_NCCL = """
import polyrank

try:
    polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, backend="cpu:tcp,cuda:nccl")
except polyrank.BackendUnavailableError as error:
    assert error.backend == "nccl"
    assert error.why in polyrank.backend_unavailable_reason("nccl")
    print(error)
"""


def test_a_backend_that_cannot_be_used_says_why():
    library = "/nowhere/libnccl.so"
    environment = {**os.environ, "POLYRANK_NCCL_LIBRARY": library}
    said = subprocess.check_output([sys.executable, "-c", WITHOUT_NCCL], env=environment, text=True)
    assert "backend 'nccl' is not available" in said and library in said


def test_a_store_has_an_address():
    server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert server.libuv_backend is False
    store = dist.create_store_client(f"127.0.0.1:{server.port}/jobs/7", timeout=30)
    store.set("key", "value")
    assert server.get("jobs/7/key") == b"value"
    for address in ["127.0.0.1", "host:port/prefix", "host:70000/prefix"]:
        with pytest.raises(polyrank.InvalidArgumentError, match="host:port/prefix"):
            dist.create_store_client(address)
    server.set_timeout(0.05)
    with pytest.raises(polyrank.StoreTimeoutError) as caught:
        server.wait(["nobody sets it"])
    assert caught.value.operation == "wait"


def test_blocks_have_classes_and_the_default_limit_a_name():
    assert dist.default_pg_timeout.total_seconds() == 1800
    store = polyrank.HashStore()
    group = polyrank.ProcessGroup(store, 0, 1, timeout=30)
    block = dist.process_group(group)
    assert isinstance(block, polyrank.CurrentProcessGroup)
    with block:
        assert dist.current_process_group().group_name == group.group_name
    named = dist.record_comm("layer 1")
    assert isinstance(named, polyrank.CommNameBlock)
    group.shutdown()


def other_operations(here):
    """What each rank learns of ranks that call different collectives, and of one that is late."""
    group = here.make_group("surroundings: mismatch")
    group.barrier().wait()
    if here.rank == 1:
        work = group.broadcast(np.ones(3), 0)
    else:
        work = group.allreduce(np.ones(3))
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        work.wait()
    error = caught.value
    assert error.sequence == work.sequence
    assert 1 in (error.rank, error.other_rank) and error.rank != error.other_rank
    assert group.get_error() == polyrank.WorkResult.UNKNOWN
    group.abort()
    late = here.make_group("surroundings: late", timeout=0.3)
    if here.rank == 0:
        work = late.allreduce(np.ones(3))
        future = work.get_future_result()
        assert future.wait() == polyrank.WorkResult.TIMEOUT
        timed_out = work.exception()
        assert isinstance(timed_out, polyrank.CollectiveTimeoutError)
        assert f"timed out after {timed_out.waited_ms} ms" in str(timed_out)
    here.store.barrier("surroundings: late is over", here.size)
    late.abort()


def test_errors_say_who_ran_what_and_how_long(pair):
    pair.run(other_operations)


def test_a_group_without_members_says_what_needs_them():
    store = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = polyrank.ProcessGroup(store, 0, 1, enable_reconfigure=True, group_name="none yet")
    with pytest.raises(polyrank.NoMembersError) as caught:
        group.allreduce(np.ones(3))
    assert caught.value.group == "none yet"
    assert caught.value.operation == "allreduce"
    assert caught.value.why in str(caught.value)
    for call in [
        lambda: group.all_gather_single(np.ones(2), np.ones(2)),
        lambda: group.reduce_scatter_single(np.ones(2), np.ones(2)),
        lambda: group.all_to_all_single(np.ones(2), np.ones(2)),
        lambda: group.allgather([], np.ones(2)),
        lambda: group.monitored_barrier(),
    ]:
        with pytest.raises(polyrank.NoMembersError):
            call()


def test_a_work_is_boxed_and_unboxed():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, timeout=30)
    tensor = np.ones(3)
    work = group.allreduce(tensor)
    assert polyrank.Work.unbox(work.boxed()).wait()
    group.shutdown()


def options_of_lists(here):
    group = here.group
    options = polyrank.ScatterOptions()
    options.root_rank = here.size - 1
    lists = [np.full(2, float(r)) for r in range(here.size)]
    mine = np.zeros(2)
    group.scatter([mine], [lists] if here.rank == here.size - 1 else [], options).wait()
    assert np.array_equal(mine, lists[here.rank])
    options = polyrank.ReduceScatterOptions()
    options.timeout = 20
    group.reduce_scatter([mine], [lists], options).wait()
    assert np.array_equal(mine, lists[here.rank] * here.size)
    options = polyrank.AllToAllOptions()
    options.timeout, options.async_op = 20, True
    swapped = [np.zeros(1) for _ in range(here.size)]
    group.alltoall(swapped, [np.full(1, float(here.rank))] * here.size, options).wait()
    assert np.array_equal(np.concatenate(swapped), np.arange(here.size, dtype=float))
    options = polyrank.BarrierOptions()
    options.device_ids, options.device = [0], "cpu"
    group.barrier(options).wait()


def test_options_of_scatter_alltoall_and_barrier(trio):
    trio.run(options_of_lists)


def hooks_are_told(here):
    group = here.make_group("surroundings: hooks")
    # Completions are told on the thread that notices them, which need not be the one that waits.
    posted, ended, aborted = [], queue.Queue(), []
    group.register_post_hook(1, posted.append)
    group.register_completion_hook(1, ended.put)
    group.register_abort_hook(2, lambda: aborted.append("told"))
    group.unregister_abort_hook(2)
    group.allreduce(np.ones(2)).wait()
    (post,), end = posted, ended.get(timeout=LIMIT)
    assert isinstance(post, polyrank.PostHookArgs)
    assert isinstance(end, polyrank.CompletionHookArgs)
    assert (post.name, post.op_id) == (end.name, end.op_id) == ("ALLREDUCE", end.op_id)
    assert post.work.is_success()
    here.store.barrier("surroundings: hooks", here.size)
    if here.rank == 0:
        group.abort()
    else:
        with pytest.raises(polyrank.AbortedError):
            group.allreduce(np.ones(2)).wait()
    assert not aborted


def test_hooks_are_told_by_their_records(pair):
    pair.run(hooks_are_told)


def reconfigured_in_flight(here):
    group = here.make_group("surroundings: reconfigured")
    work = group.allreduce(np.ones(2)) if here.rank == 0 else None
    here.store.set(f"surroundings: handle {here.rank}", group.get_reconfigure_handle())
    keys = [f"surroundings: handle {rank}" for rank in range(here.size)]
    names = [here.store.get(key).decode() for key in keys]
    options = polyrank.ReconfigureOptions(uuid=7, handles=names, hints=None)
    group.reconfigure(options).wait()
    if work is not None:
        with pytest.raises(polyrank.ReconfiguredError) as caught:
            work.wait()
        assert caught.value.sequence == work.sequence
    tensor = np.ones(2)
    group.allreduce(tensor).wait()
    assert np.array_equal(tensor, np.full(2, float(here.size)))
    group.shutdown()


def test_an_operation_of_former_members_says_its_number(pair):
    pair.run(reconfigured_in_flight)


def test_a_build_says_what_it_has():
    info = dist.build_info()
    assert info["version"] == polyrank.__version__
    assert info["target"].startswith("x86_64-linux") and "tcp" in info["features"]
    backends = {it["name"]: it for it in info["backends"]}
    assert {"tcp", "nccl", "mpi", "websocket", "fake"} <= backends.keys()
    for name, backend in backends.items():
        assert (backend["unavailable"] or "") == dist.backend_unavailable_reason(name)
    assert backends["tcp"]["devices"] == ["cpu", "cuda"]
    assert backends["tcp"]["takes_cuda_memory"] is False
    assert backends["nccl"]["takes_cuda_memory"] is True


def test_a_backend_is_recommended_that_can_be_used():
    recommended = dist.recommend_backend()
    for part in recommended["backend"].split(","):
        assert dist.is_backend_available(part.split(":")[-1]), recommended
    assert len(recommended["reason"]) > 20
