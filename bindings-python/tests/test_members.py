"""The default group by its names, the current group, groups without this process, and who is late
at a barrier."""

import asyncio
import threading
import time

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist


def join(here, name):
    store = polyrank.PrefixStore(name, here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)


def default_group_by_name(here):
    assert dist.group.WORLD is None
    with pytest.raises(polyrank.NotInitializedError):
        dist.current_process_group()
    join(here, "by name")
    for world in (dist.group.WORLD, dist.GroupMember.WORLD):
        assert world.size() == here.size
    tensor = np.ones(2)
    dist.all_reduce(tensor, group=dist.group.WORLD)
    assert (tensor == here.size).all()
    assert dist.current_process_group().group_name == dist.group.WORLD.group_name
    dist.destroy_process_group()
    assert dist.group.WORLD is None


def test_default_group_by_name(pair):
    pair.run(default_group_by_name)


def outside(here):
    join(here, "outside")
    # Every rank makes both groups, and each is outside of one.
    first, second = dist.new_group([0]), dist.new_group([1, 2])
    inside, other = (first, second) if here.rank == 0 else (second, first)
    assert other is dist.GroupMember.NON_GROUP_MEMBER and not other
    assert isinstance(inside, polyrank.ProcessGroup)
    tensor = np.ones(1)
    calls = [
        lambda: dist.all_reduce(tensor, group=other),
        lambda: dist.all_reduce(tensor, group=other, async_op=True),
        lambda: dist.barrier(group=other),
        lambda: dist.monitored_barrier(group=other),
        lambda: dist.isend(tensor, 0, group=other),
        lambda: dist.all_gather_object([], 1, group=other),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="does not belong to the given group"):
            assert call() is None
    with pytest.warns(UserWarning, match=f"Running recv on global rank {here.rank}"):
        assert dist.recv(tensor, group=other) == -1
    assert tensor[0] == 1
    assert (dist.get_rank(other), dist.get_world_size(other)) == (-1, -1)
    for call in (dist.get_backend, dist.get_process_group_ranks):
        with pytest.raises(polyrank.InvalidGroupError):
            call(other)
    dist.destroy_process_group(other)
    dist.all_reduce(tensor, group=inside)
    assert tensor[0] == inside.size()
    dist.barrier()
    dist.destroy_process_group()


def test_groups_without_this_process(trio):
    trio.run(outside)


def current(here):
    one, other = here.make_group("current one"), here.make_group("current other")
    with pytest.raises(polyrank.NotInitializedError):
        dist.current_process_group()
    with dist.process_group(one) as entered:
        assert entered is one and dist.current_process_group() is one
        with pytest.raises(KeyError), dist.process_group(other):
            assert dist.current_process_group() is other
            raise KeyError
        assert dist.current_process_group() is one
        # Another thread has its own.
        seen = []

        def look():
            try:
                seen.append(dist.current_process_group())
            except polyrank.NotInitializedError:
                seen.append(None)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [None]
        asyncio.run(tasks(one, other))
    with pytest.raises(polyrank.NotInitializedError):
        dist.current_process_group()


async def tasks(one, other):
    async def task(group):
        with dist.process_group(group):
            await asyncio.sleep(0)
            assert dist.current_process_group() is group
            await asyncio.sleep(0)
            assert dist.current_process_group() is group

    await asyncio.gather(task(one), task(other), task(one))
    assert dist.current_process_group() is one


def test_current_group(pair):
    pair.run(current)


def everybody_comes(here):
    group = here.make_group("everybody comes")
    for wait_all_ranks in (False, True, False):
        group.monitored_barrier(wait_all_ranks=wait_all_ranks)
    group.monitored_barrier(20.0)
    group.barrier().wait()


def test_monitored_barrier(world):
    world.run(everybody_comes)


LATE = {2, 3}


def some_are_late(here, wait_all_ranks):
    group = here.make_group(f"some are late {wait_all_ranks}")
    group.monitored_barrier()
    named = "Ranks 2, 3" if wait_all_ranks else "Rank 2"
    text = f"{named} failed to pass monitoredBarrier in 500 ms"
    if here.rank not in LATE:
        if here.rank == 0:
            # It decides, and its time begins when all came that shall.
            group.get_group_store().wait([f"monitored_barrier/1/{rank}" for rank in (1, 4)])
        with pytest.raises(polyrank.MonitoredBarrierError) as raised:
            group.monitored_barrier(0.5 if here.rank == 0 else 20, wait_all_ranks)
        if here.rank:
            assert f"Rank {here.rank} successfully reached" in str(raised.value)
        assert f"[Rank 0]: {text}" in str(raised.value)
        here.store.set(f"failed{wait_all_ranks}{here.rank}", "")
    else:
        here.store.wait([f"failed{wait_all_ranks}{rank}" for rank in (0, 1, 4)])
        # Who comes when the others gave up fails immediately.
        started = time.monotonic()
        with pytest.raises(polyrank.MonitoredBarrierError, match=text):
            group.monitored_barrier(20, wait_all_ranks)
        assert time.monotonic() - started < 10
    # The group is whole: the next barrier passes, and so do collectives.
    group.monitored_barrier()
    tensor = np.ones(1)
    group.allreduce(tensor).wait()
    assert tensor[0] == here.size


@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_who_is_late_at_a_monitored_barrier(pools, wait_all_ranks):
    pools(5).run(some_are_late, wait_all_ranks)


def zero_is_immediately(here):
    group = here.make_group("zero is immediately")
    if here.rank == 0:
        group.get_group_store().wait(["monitored_barrier/0/1"])
        # Who is there already is enough.
        group.monitored_barrier(0)
        text = "Rank 1 failed to pass monitoredBarrier in 0 ms"
        with pytest.raises(polyrank.MonitoredBarrierError, match=text):
            group.monitored_barrier(0)
        here.store.set("rank 0 waits for nobody", "")
    else:
        group.monitored_barrier(20)
        here.store.wait(["rank 0 waits for nobody"])
        with pytest.raises(polyrank.MonitoredBarrierError):
            group.monitored_barrier(0)
    # A group whose timeout is zero has no limit.
    group.set_timeout(0)
    tensor = np.ones(1)
    group.allreduce(tensor).wait()
    group.monitored_barrier()
    assert tensor[0] == here.size


def test_a_monitored_barrier_with_timeout_0_waits_for_nobody(pair):
    pair.run(zero_is_immediately)


def rank_0_is_late(here):
    group = here.make_group("rank 0 is late")
    text = "Rank 0 failed to pass monitoredBarrier in 300 ms"
    if here.rank == 0:
        here.store.wait(["rank 1 gave up"])
        with pytest.raises(polyrank.MonitoredBarrierError, match=text):
            group.monitored_barrier(20)
    else:
        with pytest.raises(polyrank.MonitoredBarrierError, match=text):
            group.monitored_barrier(0.3)
        here.store.set("rank 1 gave up", "")
    group.monitored_barrier()


def test_rank_0_is_late_at_a_monitored_barrier(pair):
    pair.run(rank_0_is_late)
