"""Several groups: at once, of some of the ranks, under one store."""

import threading

import numpy as np
import pytest

import polyrank


def two_at_once(here):
    one, other = here.make_group("one"), here.make_group("other")
    first, second = np.ones(1000), np.full(10, 2.0)
    # Each rank uses the groups in another order, which is allowed.
    if here.rank % 2:
        works = [one.allreduce(first), other.allreduce(second)]
    else:
        works = [other.allreduce(second), one.allreduce(first)]
    for work in works:
        work.wait()
    assert (first == here.size).all() and (second == 2 * here.size).all()
    # One tensor may be the input of both.
    given = np.full(2, float(here.rank))
    outputs = [[np.zeros(2) for _ in range(here.size)] for _ in range(2)]
    works = [one.allgather(outputs[0], given), other.allgather(outputs[1], given)]
    for work in works:
        work.wait()
    assert all((o == r).all() for out in outputs for r, o in enumerate(out))
    one.shutdown()
    other.shutdown()


def test_two_groups_at_once(trio):
    trio.run(two_at_once)


def splits(here):
    # Each rank gives the ranks of its own new group.
    ranks = [1, 0] if here.rank < 2 else list(range(2, here.size))
    group = here.group.split_group(ranks)
    assert group.size() == len(ranks)
    assert group.rank() == ranks.index(here.rank)
    assert group.ranks() == ranks
    tensor = np.full(2, float(here.rank))
    group.allreduce(tensor).wait()
    assert tensor.tolist() == [float(sum(ranks))] * 2
    outputs = [np.zeros(1) for _ in ranks]
    group.allgather(outputs, np.full(1, float(here.rank))).wait()
    assert [o[0] for o in outputs] == [float(r) for r in ranks]
    assert here.group.split_group([0]) is None or here.rank == 0
    for wrong in ([], [0, 0], [here.size]):
        with pytest.raises(ValueError):
            here.group.split_group(wrong)
    here.group.barrier().wait()


def test_split_group(pools):
    pools(5).run(splits)


def queries(here):
    group = here.group
    assert group.rank() == here.rank
    assert group.size() == here.size
    assert group.name() == "tcp"
    assert group.group_name == "pool"
    assert group.ranks() == list(range(here.size))
    assert group.timeout.total_seconds() == 30.0
    group.set_timeout(29)
    assert group.timeout.total_seconds() == 29.0
    group.set_timeout(30)
    store = group.get_group_store()
    store.set(f"key{here.rank}", str(here.rank))
    other = (here.rank + 1) % here.size
    assert store.get(f"key{other}") == str(other).encode()
    assert "pool" in repr(group)


def test_queries(pair):
    pair.run(queries)


def test_wrong_groups_are_refused():
    store = polyrank.HashStore()
    with pytest.raises(ValueError):
        polyrank.ProcessGroup(store, 2, 2)
    with pytest.raises(ValueError, match="world_size must be at least 1, got 0"):
        polyrank.ProcessGroup(store, 0, 0)
    with pytest.raises(polyrank.UnknownBackendError, match="expected one of: tcp, ") as caught:
        polyrank.ProcessGroup(store, 0, 1, backend="carrier pigeon")
    assert caught.value.backend == "carrier pigeon"
    assert caught.value.known.split(", ")[:2] == ["tcp", "gloo"]
    with pytest.raises(TypeError):
        polyrank.ProcessGroup("store", 0, 1)


def test_missing_ranks_are_named():
    store = polyrank.HashStore()
    with pytest.raises(polyrank.RendezvousTimeoutError) as caught:
        polyrank.ProcessGroup(store, 1, 4, timeout=0.3, group_name="incomplete")
    assert isinstance(caught.value, TimeoutError)
    for rank in ("0", "2", "3"):
        assert rank in str(caught.value)
    assert (caught.value.rank, caught.value.missing_ranks) == (0, [0, 2, 3])


def crossing_calls(here):
    # Threads that made groups and have ended make no more.
    for name in ("first", "second"):
        maker = threading.Thread(
            target=here.group.split_group, args=([0, 1],), kwargs={"group_name": name}
        )
        maker.start()
        maker.join()
    own = "one" if here.rank == 0 else "other"
    with pytest.raises(polyrank.RendezvousError, match="calls cross") as caught:
        here.group.split_group([0, 1], group_name=own)
    for name in ("one", "other"):
        assert f"(group '{name}')" in str(caught.value)


def test_calls_that_cross_are_told_after_threads_made_groups(pools):
    pools(2).run(crossing_calls)


def operation_before_group(here):
    group = here.make_group("operation before group")
    tensor = np.ones(2)
    if here.rank == 0:
        # It looks a few times before it makes the group that the other rank makes first.
        work = group.allreduce(tensor)
        for _ in range(10):
            with pytest.raises(polyrank.WaitTimeoutError):
                work.wait(timeout=0.1)
    part = group.split_group([0, 1])
    if here.rank == 1:
        work = group.allreduce(tensor)
    work.wait()
    assert tensor.tolist() == [2, 2]
    assert part.size() == 2


def test_an_operation_that_is_waited_for_in_slices_may_come_before_a_group(pools):
    pools(2).run(operation_before_group)


def kinds_of_devices(here):
    group = here.make_group("kinds of devices")
    half = group.split_group([0, 1], device_types=["cpu"], group_name="of the host")
    assert half.size() == 2
    # What one rank gives is an error on it, and the other does not wait for it.
    with pytest.raises((polyrank.InvalidArgumentError, polyrank.RendezvousError)) as caught:
        kinds = ["nonsense"] if here.rank == 0 else None
        group.split_group([0, 1], device_types=kinds, group_name="of nonsense")
    assert "device_types are 'cpu' and 'cuda', not 'nonsense'" in str(caught.value)
    hosts = polyrank.ProcessGroup(
        polyrank.PrefixStore("of hosts", here.store), here.rank, 2, backend="cpu:tcp"
    )
    with pytest.raises(polyrank.InvalidArgumentError, match="'cuda', which no backend of group"):
        hosts.split_group([0, 1], device_types=["cpu", "cuda"])


def test_kinds_of_devices_are_those_that_are_served(pair):
    pair.run(kinds_of_devices)
