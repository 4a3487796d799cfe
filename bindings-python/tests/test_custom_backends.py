"""Backends that are written in Python: one that exchanges everything over the store of its group
has the results of NumPy, and what fails in it, or never ends, is that operation's error."""

import asyncio
import concurrent.futures
import os
import queue
import threading
import time

import numpy as np
import polyrank as dist
import pytest
from over_store import LIMIT, OverStore, over


class Odd:
    """Does what backends should not, and some things in uncommon ways."""

    def __init__(self, options, more):
        assert more is None
        self.options = options
        self.inner = dist.ProcessGroup(
            options.store, options.group_rank, options.group_size, timeout=options.timeout
        )
        self.aborted = threading.Event()
        self.ended = []

    def allreduce(self, tensors, opts):
        # The work of another group.
        return self.inner.allreduce(tensors, opts)

    def allgather(self, output_tensors, input_tensors, opts):
        class Handle:
            def wait(handle):
                for output in output_tensors[0]:
                    output[:] = input_tensors[0]
                return True

        return Handle()

    def broadcast(self, tensors, opts):
        tensors[0][:] = 99
        raise KeyError("no broadcasting")

    async def reduce(self, tensors, opts):
        await asyncio.sleep(0)
        raise LookupError("no reducing")

    def alltoall(self, output_tensors, input_tensors, opts):
        return "what is this?"

    def gather(self, output_tensors, input_tensors, opts):
        raise NotImplementedError

    def barrier(self, opts):
        return asyncio.Event().wait()

    def recv_anysource(self, tensors, tag):
        tensors[0][:] = tag
        return 1

    def abort(self):
        self.aborted.set()
        ABORTED.append(self.options.group_id)

    async def shutdown(self):
        self.inner.shutdown()
        ABORTED.append("left")


ABORTED = []


def factory_that_dislikes_rank_1(store, rank, size, timeout):
    if rank == 1:
        raise OSError("not on this rank")
    return OverStore(store, rank, size, timeout)


dist.Backend.register_backend("odd", Odd, extended_api=True, devices=["cpu", "cuda"])
dist.register_backend("dislikes", factory_that_dislikes_rank_1, devices="cpu")
dist.register_backend("nothing", lambda *_: None)


def everything(here, seed):
    rank, size = here.rank, here.size
    with over(here, f"everything{seed}") as group:
        for dtype in ("float32", "float64", "int32", "uint8", "complex128", "float16"):
            check_dtype(group, rank, size, np.dtype(dtype), seed)
        check_messages(group, rank, size)
        group.barrier().wait()
        # Averages and factors are the group's own.
        mean = np.full(3, float(rank))
        group.allreduce(mean, dist.ReduceOp.AVG).wait()
        assert mean == pytest.approx((size - 1) / 2)
        scaled = np.ones((2, 4))[:, ::2]
        group.allreduce(scaled, dist.premul_sum(0.5)).wait()
        assert scaled == pytest.approx(size / 2)


def check_dtype(group, rank, size, dtype, seed):
    """Each collective on random arrays, against NumPy on those of all ranks."""
    random = np.random.default_rng(seed)

    def array(*shape):
        values = random.integers(0, 5, (size, *shape)).astype(dtype)
        return values, values[rank].copy()

    root = int(random.integers(size))
    every, mine = array(2, 3)
    group.allreduce([mine]).wait()
    assert np.array_equal(mine, every.sum(0).astype(dtype))
    if dtype.kind in "iuf":
        every, mine = array(4)
        group.allreduce(mine, dist.ReduceOp.MAX).wait()
        assert np.array_equal(mine, every.max(0))
    every, mine = array(4)
    before = mine.copy()
    group.reduce(mine, root).wait()
    assert np.array_equal(mine, every.sum(0).astype(dtype) if rank == root else before)
    every, mine = array(4)
    group.broadcast(mine, root).wait()
    assert np.array_equal(mine, every[root])
    every, mine = array(3)
    outputs = [np.zeros(3, dtype) for _ in range(size)]
    group.allgather([outputs], [mine]).wait()
    assert np.array_equal(outputs, every)
    outputs = [np.zeros(3, dtype) for _ in range(size)] if rank == root else []
    group.gather(outputs, mine, root).wait()
    assert rank != root or np.array_equal(outputs, every)
    every, mine = array(size, 2)
    output = np.zeros(2, dtype)
    group.scatter(output, list(mine) if rank == root else [], root).wait()
    assert np.array_equal(output, every[root][rank])
    group.reduce_scatter(output, list(mine)).wait()
    assert np.array_equal(output, every[:, rank].sum(0).astype(dtype))
    single = np.zeros((size, 2), dtype)
    group.all_to_all_single(single, mine).wait()
    assert np.array_equal(single, every[:, rank])


def check_messages(group, rank, size):
    """Each rank receives before it sends."""
    got = np.zeros(2, np.int64)
    work = group.recv([got], (rank - 1) % size, 3)
    group.send([np.array([rank, 7])], (rank + 1) % size, 3).wait()
    work.wait()
    assert list(got) == [(rank - 1) % size, 7] and work.source_rank() == (rank - 1) % size


def test_the_results_are_those_of_numpy(world):
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    world.run(everything, seed)


def odd_ways(here):
    group = over(here, "odd ways", "odd")
    data = np.full(2, 1.0)
    group.allreduce(data).wait()
    assert list(data) == [here.size] * 2
    outputs = [np.zeros(2) for _ in range(here.size)]
    group.allgather([outputs], [data]).wait()
    assert np.array_equal(outputs, [data] * here.size)
    got = np.zeros(1)
    work = group.recv_anysource([got], 5)
    work.wait()
    assert (work.source_rank(), got[0]) == (1, 5)
    asyncio.run(awaited(group, data))
    # Called on the thread that notices the end, which need not be the one that waits.
    ended = queue.Queue()
    group.register_completion_hook(0, lambda args: ended.put((args.name, type(args.error))))
    with pytest.raises(dist.DistBackendError) as caught:
        group.broadcast(data, 0).wait()
    said = f"broadcast (operation 4 of group 'group') on rank {here.rank}: KeyError: "
    assert str(caught.value) == f"odd: {said}'no broadcasting'"
    assert isinstance(caught.value.__cause__, KeyError)
    assert data[0] != 99, "what failed has not written"
    with pytest.raises(dist.DistBackendError, match="LookupError: no reducing"):
        group.reduce(data, 0).wait()
    with pytest.raises(dist.DistBackendError, match="cannot be waited for"):
        group.all_to_all_single(np.zeros(here.size), np.zeros(here.size)).wait()
    for refused in (lambda: group.gather([], data, 0 if here.rank else 1),
                    lambda: group.scatter(data, [], 0 if here.rank else 1)):
        with pytest.raises(dist.UnsupportedError, match="the backend 'odd' does not support"):
            refused().wait()
    told = [ended.get(timeout=LIMIT) for _ in range(5)]
    assert sorted(name for name, _ in told) == [
        "ALLTOALL", "BROADCAST", "GATHER", "REDUCE", "SCATTER"
    ]
    assert dist.DistBackendError in (kind for _, kind in told) and ended.empty()
    # None of that broke the group.
    group.allreduce(data).wait()
    group.shutdown()
    assert ABORTED[-1] == "left"


async def awaited(group, data):
    before = data[0]
    await group.allreduce(data)
    assert data[0] == before * group.size()


def test_works_futures_and_errors_of_many_kinds(pair):
    pair.run(odd_ways)


def late(here):
    group = over(here, "late", "odd", timeout=0.2)
    told = []
    group.register_abort_hook(0, lambda: told.append("aborted"))
    with pytest.raises(dist.CollectiveTimeoutError) as caught:
        group.barrier().wait()
    assert "the backend 'odd' had not ended it" in str(caught.value)
    assert (caught.value.collective, caught.value.waiting_rank) == ("barrier", here.rank)
    with pytest.raises(dist.CollectiveTimeoutError):
        group.allreduce(np.ones(1)).wait()
    assert told == ["aborted"]
    # Without a thread that waits, too.
    other = over(here, "late again", "odd", timeout=0.2)
    work = other.barrier()
    deadline = time.monotonic() + LIMIT
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert isinstance(work.exception(), dist.CollectiveTimeoutError)


def test_one_that_never_ends_passes_its_deadline(pair):
    pair.run(late)


def late_in_a_callback(here):
    first, second = (over(here, name, "odd", timeout=0.2) for name in ("first", "second"))
    ended = threading.Event()

    def wait(_):
        with pytest.raises(dist.CollectiveTimeoutError):
            second.barrier().wait()
        ended.set()

    work = first.barrier()
    work.get_future().add_done_callback(wait)
    with pytest.raises(dist.CollectiveTimeoutError):
        work.wait()
    assert ended.wait(LIMIT), "what waits in a callback has no deadline"


def test_what_waits_in_a_callback_passes_its_deadline_too(pair):
    pair.run(late_in_a_callback)


def late_together(here):
    group = over(here, "late together", "odd", timeout=0.2)
    first, second = group.barrier(), group.barrier()
    ended = threading.Event()

    def wait(_):
        with pytest.raises(dist.CollectiveTimeoutError):
            second.wait()
        ended.set()

    first.get_future().add_done_callback(wait)
    with pytest.raises(dist.CollectiveTimeoutError):
        first.wait()
    assert ended.wait(LIMIT), "the second has not ended with the first"


def test_a_callback_may_wait_for_another_that_ends_with_its_own(pair):
    pair.run(late_together)


def aborting(here):
    group = over(here, "aborting", "odd")
    before = ABORTED.count("group")
    work = group.barrier()
    with pytest.raises(dist.WaitTimeoutError):
        work.wait(0.05)
    group.abort()
    with pytest.raises(dist.AbortedError):
        work.wait()
    deadline = time.monotonic() + LIMIT
    while ABORTED.count("group") == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_aborting_ends_what_is_in_flight_and_tells_the_backend(pair):
    pair.run(aborting)


def default_group(here):
    store = dist.PrefixStore("default", here.store)
    dist.init_process_group(
        "over_store", store=store, rank=here.rank, world_size=here.size, timeout=LIMIT
    )
    assert dist.get_backend() == "over_store"
    assert dist.get_backend_config() == "cpu:over_store,cuda:over_store"
    data = np.ones(3)
    dist.all_reduce(data)
    assert data[0] == here.size
    gathered = [None] * here.size
    dist.all_gather_object(gathered, {"rank": here.rank})
    assert gathered == [{"rank": rank} for rank in range(here.size)]
    part = dist.new_group([0, 1], backend="cpu:odd", timeout=LIMIT)
    if here.rank < 2:
        data = np.ones(1)
        dist.all_reduce(data, group=part)
        assert data[0] == 2 and dist.get_backend(part) == "odd"
        served = part.get_backend("cpu")
        assert (served.name(), served.rank(), served.size()) == ("odd", here.rank, 2)
        assert served.options.timeout.total_seconds() == LIMIT
        assert served.backend_type is dist.ProcessGroup.BackendType.CUSTOM
        with pytest.raises(dist.InvalidArgumentError, match="serves cuda:0"):
            part.get_backend("cuda")
    plain = dist.new_group(backend="tcp", timeout=LIMIT)
    assert plain.get_backend("cpu").backend_type is dist.BackendType.GLOO
    dist.destroy_process_group()
    with pytest.raises(dist.InvalidGroupError, match="Invalid process group specified"):
        dist.get_backend(plain)


def test_the_default_group_and_groups_of_it(trio):
    trio.run(default_group)


def disliked(here):
    with pytest.raises(dist.PolyrankError, match="OSError: not on this rank"):
        over(here, "disliked", "dislikes")
    with pytest.raises(dist.DistBackendError, match="the factory returned None"):
        over(here, "nothing", "nothing")


def test_a_factory_that_fails_on_one_rank_fails_on_all(trio):
    trio.run(disliked)


def test_ranks_may_be_threads_that_block_in_their_backends():
    store = dist.HashStore()

    def rank_main(rank):
        group = dist.ProcessGroup(store, rank, 4, backend="over_store", timeout=LIMIT)
        works = [group.allreduce(np.full(1, float(rank))) for _ in range(20)]
        for work in works:
            work.wait()
        sums = [work.result()[0][0] for work in works]
        group.shutdown()
        return sums

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(rank_main, range(4))) == [[6.0] * 20] * 4


def test_names():
    assert dist.Backend.OVER_STORE == "over_store" == dist.Backend("Over_Store")
    assert dist.Backend.OVER_STORE is dist.Backend("over_store")
    assert {"tcp", "gloo", "nccl", "fake", "odd"} <= set(dist.Backend.backend_list)
    assert dist.Backend.backend_capability["odd"] == ["cpu", "cuda"]
    assert dist.Backend.backend_capability["over_store"] == ["cpu", "cuda"]
    assert "ucc" not in dist.Backend.backend_capability
    assert dist.Backend.default_device_backend_map == {"cpu": "tcp", "cuda": "nccl"}
    assert dist.is_backend_available("ODD") and not dist.is_backend_available("even")
    kinds = [kind.value for kind in dist.ProcessGroup.BackendType]
    assert kinds == list(range(7)) and dist.ProcessGroup.NCCL is dist.BackendType.NCCL
    for name in ("ODD", "gloo", "nccl"):
        with pytest.raises(dist.DuplicateBackendError) as caught:
            dist.register_backend(name, OverStore)
        assert isinstance(caught.value, ValueError) and caught.value.backend == name.lower()
    for name, why in (("cpu", "kind of device"), ("Undefined", "no backend"), ("-", "a letter"),
                      ("", "a letter"), ("a,b", "a letter")):
        with pytest.raises(dist.InvalidArgumentError, match=why):
            dist.register_backend(name, OverStore)
    for name, devices in (("a:b", None), ("tpus", ["tpu"])):
        with pytest.raises(dist.InvalidArgumentError):
            dist.register_backend(name, OverStore, devices=devices)
    with pytest.raises(dist.UnknownBackendError):
        dist.ProcessGroup(dist.HashStore(), 0, 1, backend="unheard")
    with pytest.raises(TypeError):
        dist.register_backend("no function", 3)


def test_fake_is_a_rank_of_any_world():
    dist.init_process_group("fake", rank=3, world_size=64)
    try:
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (3, 64, "fake")
        data = np.arange(4.0)
        dist.all_reduce(data)
        dist.broadcast(data, src=9)
        assert list(data) == [0, 1, 2, 3]
        outputs = [np.zeros(4) for _ in range(64)]
        dist.all_gather(outputs, data)
        assert np.array_equal(outputs, [data] * 64)
        every, own = np.arange(64.0), np.zeros(1)
        dist.reduce_scatter_tensor(own, every)
        assert own[0] == 3
        mean = np.full(1, 128.0)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert mean[0] == 2
        dist.barrier()
        dist.monitored_barrier()
        part = dist.new_group([3, 5])
        assert (part.rank(), part.size()) == (0, 2)
        assert dist.new_group([5, 6]) is dist.GroupMember.NON_GROUP_MEMBER
        everybody = [None] * 64
        dist.all_gather_object(everybody, "me")
        assert everybody == ["me"] * 64
        with pytest.raises(dist.UnsupportedError, match="whose other ranks do not exist"):
            dist.broadcast_object_list([1], src=0)
        assert part.get_backend("cpu").backend_type is dist.BackendType.CUSTOM
    finally:
        dist.destroy_process_group()
