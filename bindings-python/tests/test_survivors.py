"""Those that are left of a group: `revoke`, `get_error`, `agree` and `shrink_group`, over processes
of which one is killed."""

import os
import signal

import numpy as np
import pytest

import polyrank
from ranks import Pool

# How long a rank waits that should not have to.
LIMIT_S = 50.0


def broken(here):
    """The group of a rank after another has revoked it."""
    group = here.make_group("survivors")
    assert group.get_error() == polyrank.WorkResult.SUCCESS
    # What follows is told to each rank at once.
    group.barrier().wait()
    if here.rank == 0:
        group.revoke()
    with pytest.raises(polyrank.AbortedError, match="rank 0: it revoked the group"):
        group.barrier().wait()
    assert group.get_error() == polyrank.WorkResult.COMM_ERROR
    # Nobody is killed while another has still to hear of this.
    here.store.barrier("broken", here.size)
    return group


def die(here):
    broken(here)
    os.kill(os.getpid(), signal.SIGKILL)


def survive(here, dead):
    group = broken(here)
    agreed = group.agree(0b110 + here.rank, timeout=LIMIT_S)
    with pytest.raises(polyrank.RankFailedError, match=f"rank {dead} ") as caught:
        group.shrink_group([], timeout=LIMIT_S).wait()
    assert caught.value.rank == dead
    group.shrink_group([dead], timeout=LIMIT_S).wait()
    assert group.get_error() == polyrank.WorkResult.SUCCESS
    tensor = np.full(3, float(here.rank))
    group.allreduce(tensor).wait()
    assert group.agree(5, timeout=LIMIT_S) == 5
    group.shutdown()
    return agreed, tensor.tolist(), group.rank(), group.size()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_killed_rank_is_named_and_the_others_go_on(size):
    pool, dead = Pool(size), size - 1
    try:
        others = list(range(dead))
        pool.connections[dead].send((die, ()))
        results = pool.run(survive, dead, ranks=others)
        assert pool.processes[dead].join(LIMIT_S) is None
        assert pool.processes[dead].exitcode == -signal.SIGKILL
        common = -1
        for rank in others:
            common &= 0b110 + rank
        for rank, result in zip(others, results):
            assert result == (common, [float(sum(others))] * 3, rank, dead)
    finally:
        pool.close(kill=True)


def leave_out(here):
    group = here.make_group("left out")
    last = here.size - 1
    assert group.agree(0b101 if here.rank == 0 else 0b111) == 0b101
    with pytest.raises(polyrank.InvalidArgumentError, match="which calls it"):
        group.shrink_group([here.rank])
    if here.rank != last:
        group.shrink_group([last]).wait()
        tensor = np.ones(2)
        group.allreduce(tensor).wait()
        assert (tensor == last).all()
        assert (group.rank(), group.size()) == (here.rank, last)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_rank_that_lives_is_left_out(pools, size):
    pools(size).run(leave_out)


def too_late(here):
    group = here.make_group("too late to agree")
    if here.rank == 0:
        with pytest.raises(polyrank.RendezvousTimeoutError) as caught:
            group.agree(1, timeout=0.2)
        assert caught.value.missing_ranks == [1]
        here.store.set("gave up", "")
    else:
        here.store.wait(["gave up"])
        with pytest.raises(polyrank.RendezvousTimeoutError, match="had given up"):
            group.agree(1, timeout=0)
    # The next call of one is the next of both.
    assert group.agree(3 - here.rank) == 2


def test_a_call_that_fails_does_so_for_all(pair):
    pair.run(too_late)


def prepares(here):
    group = here.make_group("prepares")
    tensor = np.ones(2, np.float32)
    prepared = group.prepare_allreduce(tensor)
    prepared.run()
    here.store.set(f"prepares/{here.rank}", group.get_reconfigure_handle())
    handles = [here.store.get(f"prepares/{rank}").decode() for rank in range(here.size)]
    group.reconfigure(polyrank.ReconfigureOptions(uuid=1, handles=handles)).wait()
    with pytest.raises(polyrank.ReconfiguredError):
        prepared.start()
    with pytest.raises(polyrank.ReconfiguredError):
        prepared.run()
    group.allreduce(tensor).wait()


def test_prepared_operations_end_with_the_members(pair):
    pair.run(prepares)


def destroyed(here):
    group = here.make_group("destroyed")
    handle = group.get_reconfigure_handle()
    group.shutdown()
    options = polyrank.ReconfigureOptions(uuid=1, handles=[handle])
    for call in (
        group.get_reconfigure_handle,
        lambda: group.reconfigure(options).wait(),
        lambda: group.shrink_group([]).wait(),
        lambda: group.agree(1),
    ):
        with pytest.raises(polyrank.InvalidGroupError, match="was destroyed"):
            call()


def test_a_destroyed_group_gets_no_members(pair):
    pair.run(destroyed)


KINDS = [list, tuple, iter, lambda it: dict.fromkeys(it).keys(), set, frozenset]


@pytest.mark.parametrize("kind", range(6))
def test_handles_come_in_any_iterable(kind):
    names = ["b", "a", "c"]
    options = polyrank.ReconfigureOptions(uuid=18, handles=KINDS[kind](names))
    assigned = polyrank.ReconfigureOptions()
    assigned.uuid, assigned.handles = 18, KINDS[kind](names)
    for made in (options, assigned):
        assert sorted(made.handles) == sorted(names) and made.uuid == 18
        assert made.ordered == (kind < 4), "a set has no order"
        assert not made.ordered or made.handles == names
    assert not polyrank.ReconfigureOptions(18, KINDS[kind](names), False).ordered


def test_what_is_required_is_there():
    make = polyrank.ReconfigureOptions
    for given, name in (
        ({"uuid": 1}, "handles"), ({"handles": []}, "uuid"), ({"ordered": True}, "uuid"),
        ({"uuid": None, "handles": []}, "uuid"), ({"uuid": 1, "handles": None}, "handles"),
    ):
        with pytest.raises(polyrank.InvalidTypeError, match=f"ReconfigureOptions.*'{name}'"):
            make(**given)
    with pytest.raises(polyrank.InvalidTypeError, match="'uuid' must not be None"):
        make().uuid = None
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="blank")
    with pytest.raises(polyrank.InvalidArgumentError, match="reconfigure.* uuid is an integer"):
        group.reconfigure(make())
    group.shutdown()
    # As of `uuid.uuid4().int`.
    for call in (lambda: make(uuid=2**127, handles=[]), lambda: make(2**127, [])):
        with pytest.raises(polyrank.InvalidArgumentError, match="ReconfigureOptions.*'uuid'"):
            call()


def test_what_are_no_handles():
    for wrong in ("abc", b"abc", {"a": 1}, 5, [1, 2], {1, 2}):
        with pytest.raises(polyrank.InvalidTypeError, match="Closest: argument 'handles'"):
            polyrank.ReconfigureOptions(uuid=18, handles=wrong)
    with pytest.raises(polyrank.InvalidArgumentError, match="a set, which has no order"):
        polyrank.ReconfigureOptions(uuid=18, handles={"a"}, ordered=True)


def in_sets(here):
    group = here.make_group("in sets")
    here.store.set(f"in sets/{here.rank}", group.get_reconfigure_handle())
    handles = {here.store.get(f"in sets/{rank}").decode() for rank in range(here.size)}
    group.reconfigure(polyrank.ReconfigureOptions(uuid=18, handles=handles)).wait()
    assert group.rank() == here.rank, "members keep their order"
    total = np.full(1, 1.0)
    group.allreduce(total).wait()
    assert total[0] == here.size


def test_members_whose_handles_are_in_a_set(world):
    world.run(in_sets)
