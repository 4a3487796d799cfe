"""`ErrorSwallowingProcessGroupWrapper`, `ManagedProcessGroup`, `ProcessGroupDummy` and
`ProcessGroupWrapper`: groups that do more than a group."""

import datetime
import gc
import os
import signal
import weakref

import numpy as np
import polyrank
import pytest
from polyrank import ErrorSwallowingProcessGroupWrapper, ProcessGroupDummy, ReduceOp

from ranks import Pool

LIMIT_S = 50.0


def all_operations(group, is_run):
    """Every kind of operation, of which none raises. What a dummy sends to itself does not come."""
    is_sent = is_run and not isinstance(group, ProcessGroupDummy)
    rank, size = group.rank(), group.size()
    for count in (0, 1, 1001, 70_001):
        total = np.ones(count)
        group.allreduce(total).wait()
        assert (total == (size if is_run else 1)).all()
        parts = [np.full(count, -1, np.int32) for _ in range(size)]
        group.allgather([parts], [np.full(count, rank, np.int32)]).wait()
        for sender, part in enumerate(parts):
            assert (part == (sender if is_run else -1)).all()
        strided = np.full((count, 2), rank, np.float32)[:, 0]
        work = group.broadcast(strided, 0)
        assert work.wait() and work.is_success() and work.exception() is None
        assert (strided == (0 if is_run else rank)).all()
        scattered = np.full(count, -1, np.int64)
        group.reduce_scatter(scattered, [np.full(count, rank)] * size).wait()
        assert (scattered == (sum(range(size)) if is_run else -1)).all()
        came, to, sender = np.full(count, -1.0), (rank + 1) % size, (rank - 1) % size
        sent = group.send([np.full(count, float(rank))], to, 3)
        group.recv([came], sender, 3).wait()
        sent.wait()
        assert (came == (sender if is_sent else -1)).all()
        both = [np.full(count, 2.0), np.full(count, 3, np.int8)]
        group.allreduce_coalesced(both[:1]).wait()
        assert (both[0] == (2 * size if is_run else 2)).all()
        with polyrank.coalescing_manager(group):
            polyrank.all_reduce(both[1], group=group)
        assert (both[1] == (3 * size if is_run else 3)).all()
        exchanged = np.full(count, rank)
        polyrank.batch_isend_irecv(
            [
                polyrank.P2POp(polyrank.isend, np.full(count, rank), to, group, 5),
                polyrank.P2POp(polyrank.irecv, exchanged, sender, group, 5),
            ]
        )[-1].wait()
        assert (exchanged == (sender if is_sent else rank)).all()
    group.barrier().wait()


def killed(here):
    group = here.make_group("training")
    all_operations(ErrorSwallowingProcessGroupWrapper(group), True)
    here.store.barrier("all have run", here.size)
    os.kill(os.getpid(), signal.SIGKILL)


def training(here, dead):
    group = here.make_group("training")
    wrapper = ErrorSwallowingProcessGroupWrapper(group)
    all_operations(wrapper, True)
    assert wrapper.error() is None and wrapper.parent is group
    here.store.barrier("all have run", here.size)
    while wrapper.error() is None:
        wrapper.allreduce(np.ones(3)).wait()
    error = wrapper.error()
    assert f"rank {dead}" in error, error
    all_operations(wrapper, False)
    assert wrapper.error() == error
    with pytest.raises(polyrank.RankFailedError, match=f"rank {dead} "):
        group.allreduce(np.ones(3)).wait()
    # What returns something else than tensors has nothing to return.
    with pytest.raises(polyrank.RankFailedError, match=f"rank {dead} "):
        polyrank.all_gather_object([None] * here.size, "mine", group=wrapper)
    wrapper.shrink_group([dead], timeout=LIMIT_S).wait()
    assert wrapper.error() is None and wrapper.size() == here.size - 1
    all_operations(wrapper, True)
    group.shutdown()
    return wrapper.error()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_training_goes_on_when_a_rank_is_killed(size):
    pool, dead = Pool(size), size - 1
    try:
        pool.connections[dead].send((killed, ()))
        assert pool.run(training, dead, ranks=range(dead)) == [None] * dead
        pool.processes[dead].join(LIMIT_S)
        assert pool.processes[dead].exitcode == -signal.SIGKILL
    finally:
        pool.close(kill=True)


def reconfigured(here):
    """Groups without members, that come by `configure`."""
    group = polyrank.ProcessGroup(here.store, 0, 1, enable_reconfigure=True)
    training = ErrorSwallowingProcessGroupWrapper(group)
    address = f"127.0.0.1:{here.store.port}"
    for quorum in range(3):
        tensor = np.full(4, 1.5)
        assert training.allreduce(tensor).wait() and tensor.tolist() == [1.5] * 4
        training.broadcast(tensor, 0).wait()
        assert "no members" in training.error()
        training.configure(f"{address}/{here.size}/{quorum}", here.rank, here.size)
        assert training.error() is None
        all_operations(training, True)
        work = training.recv([tensor], here.rank, 8)
        # One more than there are never comes.
        with pytest.raises(polyrank.DistError):
            late = datetime.timedelta(milliseconds=200)
            training.set_timeout(late)
            training.configure(f"{address}/{here.size}/{quorum}/late", here.rank, here.size + 1)
        training.set_timeout(datetime.timedelta(seconds=LIMIT_S))
        assert work.wait() and tensor.tolist() == [1.5] * 4


@pytest.mark.parametrize("size", [1, 2, 3])
def test_members_come_and_go(pools, size):
    pools(size).run(reconfigured)


@pytest.fixture
def alone():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1)
    yield group
    group.abort()


def test_a_wrapper_is_a_group(alone):
    wrapper = ErrorSwallowingProcessGroupWrapper(alone)
    assert isinstance(wrapper, polyrank.ProcessGroup) and wrapper.parent is alone
    assert (wrapper.rank(), wrapper.size(), wrapper.group_name) == (0, 1, alone.group_name)
    polyrank.all_reduce(np.ones(2), group=wrapper)
    assert polyrank.get_world_size(wrapper) == 1
    outer = polyrank.ProcessGroupWrapper(wrapper)
    assert outer.parent is wrapper and outer.parent.parent is alone
    gone = weakref.ref(outer)
    del outer
    gc.collect()
    assert gone() is None


def test_reported_errors(alone):
    wrapper = ErrorSwallowingProcessGroupWrapper(alone)
    wrapper.report_error("the sensor is gone")
    wrapper.report_error("so is the other")
    assert wrapper.error() == "the sensor is gone"
    tensor = np.array([2.0, 3.0])
    work = wrapper.allreduce([tensor], ReduceOp.AVG)
    assert work.wait() and work.result()[0] is tensor and work.get_future().wait()[0] is tensor


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda group: group.allreduce("no tensor"), polyrank.InvalidTypeError),
        (lambda group: group.allreduce(np.ones(2), ReduceOp.BXOR), polyrank.UnsupportedDTypeError),
        (lambda group: group.send([np.ones(2)], 4, 0), polyrank.InvalidArgumentError),
        (lambda group: group.allgather([[np.ones(2)] * 3], [np.ones(2)]), polyrank.DistError),
    ],
)
def test_wrong_calls_raise_and_are_no_failures(alone, call, error):
    wrapper = ErrorSwallowingProcessGroupWrapper(alone)
    for _ in range(2):
        with pytest.raises(error):
            call(wrapper)
        if wrapper.error() is None:
            wrapper.report_error("gone")
    assert wrapper.error() == "gone"


def test_a_dummy():
    dummy = ProcessGroupDummy(0, 1)
    all_operations(dummy, True)
    dummy.configure("nowhere:1/quorum", "replica", 0, 1, quorum_id=3)
    dummy.configure("nowhere:1/quorum", 2, 5)
    assert (dummy.configure_count, dummy.rank(), dummy.size()) == (2, 0, 1)
    with pytest.raises(polyrank.InvalidArgumentError):
        ProcessGroupDummy(2, 2)
    with pytest.raises(polyrank.InvalidTypeError):
        ErrorSwallowingProcessGroupWrapper(5)


def test_a_class_of_the_program():
    class Doubling(polyrank.ProcessGroupWrapper):
        def allreduce(self, tensors, *others):
            tensors *= 2
            return super().allreduce(tensors, *others)

    doubling, tensor = Doubling(ProcessGroupDummy()), np.ones(2)
    doubling.allreduce(tensor).wait()
    assert tensor.tolist() == [2, 2] and isinstance(doubling.parent, ProcessGroupDummy)


def test_the_group_of_a_manager(made):
    manager = made()
    managed = polyrank.ManagedProcessGroup(manager)
    assert managed.parent is manager.group()
    with pytest.raises(polyrank.InvalidArgumentError, match="start_quorum"):
        managed.allreduce([np.ones(2)])
    manager.start_quorum()
    tensor = np.array([3.0, 4.0])
    managed.allreduce([tensor], ReduceOp.AVG).wait()
    polyrank.all_reduce(tensor, group=managed)
    polyrank.broadcast(tensor, 0, group=managed)
    assert tensor.tolist() == [3, 4] and managed.size() == 1 and managed.error() is None
    assert manager.should_commit()
    manager.start_quorum()
    manager.wait_quorum()
    manager.group().abort()
    managed.broadcast(tensor, 0).wait()
    assert "abort()" in managed.error() and "abort()" in manager.errored()
    managed.allreduce([tensor]).wait()
    managed.allgather([[np.zeros(2)]], [tensor]).wait()
    assert not manager.should_commit()
    manager.start_quorum()
    managed.allreduce([tensor]).wait()
    assert manager.should_commit() and managed.error() is None
    manager.shutdown()
    with pytest.raises(polyrank.DistError):
        managed.broadcast(tensor, 0).wait()
