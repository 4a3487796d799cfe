"""Messages of a rank to itself: both orders of the calls, tags, any source, sizes, leaving."""

import asyncio

import numpy as np
import pytest

import polyrank

#: Below and above what leaves without asking, and above what is held for a rank.
COUNTS = (0, 1, 1000, 400_000)


def both_orders(here):
    group, rank = here.group, here.rank
    for count in COUNTS:
        sent = np.arange(count, dtype=np.float64) + rank
        for receives_first in (False, True):
            into = np.full(count, -1.0)
            calls = [lambda: group.send([sent], rank, 3), lambda: group.recv([into], rank, 3)]
            works = [call() for call in (calls[::-1] if receives_first else calls)]
            for work in works:
                assert work.wait()
            assert (into == sent).all()
            assert works[0 if receives_first else 1].source_rank() == rank


def test_a_message_comes_whether_the_send_or_the_receive_is_first(world):
    world.run(both_orders)


def free_functions(here):
    dist, rank = polyrank, here.rank
    with polyrank.process_group(here.group):
        group = here.group
        dist.send(np.full(2, rank), group_dst=rank, group=group, tag=4)
        strided = np.zeros(4, int)
        assert dist.recv(strided[::2], group_src=rank, group=group, tag=4) == rank
        assert strided.tolist() == [rank, 0, rank, 0]
        into = np.zeros(3)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, into, group=group, group_peer=rank),
            dist.P2POp(dist.isend, np.full(3, 1.5 + rank), group=group, group_peer=rank),
        ])
        [work.wait() for work in works]
        assert into.tolist() == [1.5 + rank] * 3
        dist.send_object_list([{"a": rank}], group_dst=rank, group=group)
        objects = [None]
        dist.recv_object_list(objects, group_src=rank, group=group)
        assert objects == [{"a": rank}]

    async def awaited():
        into = np.zeros(2, np.int32)
        receiving = here.group.recv_anysource([into], 11)
        await here.group.send([np.full(2, rank, np.int32)], rank, 11)
        await receiving
        return into.tolist()

    assert asyncio.run(awaited()) == [rank, rank]


def test_the_free_functions_batches_objects_and_await_take_them(world):
    world.run(free_functions)


def of_two_groups(here):
    dist, other = polyrank.distributed, 1 - here.rank
    groups = [here.make_group("one batch"), here.make_group("another batch")]
    sent, into = np.full(1, here.rank), np.full(1, -1)
    operations = [
        dist.P2POp(dist.isend, np.full(1, 9), group=groups[0], group_peer=other),
        dist.P2POp(dist.irecv, into, group=groups[1], group_peer=other),
    ]
    said = "All ops need to use the same group: the first is of 'one batch', .* 1 of 'another batch'"
    # As c10d raises a `ValueError`.
    with pytest.raises(ValueError, match=said) as raised:
        dist.batch_isend_irecv(operations)
    assert raised.type is polyrank.InvalidArgumentError
    # Nothing was sent: the next message is the first.
    work = groups[0].send([sent], other)
    groups[0].recv([into], other).wait()
    work.wait()
    assert into == [other]


def test_a_batch_of_several_groups_is_refused(pair):
    pair.run(of_two_groups)


def among_others(here):
    group, rank, size = here.group, here.rank, here.size
    works = [group.send([np.full(1, rank)], other, 8) for other in range(size)]
    seen = []
    for _ in range(size):
        into = np.zeros(1, np.int64)
        work = group.recv_anysource([into], 8)
        work.wait()
        assert work.source_rank() == into[0]
        seen.append(into[0])
    assert sorted(seen) == list(range(size))
    [work.wait() for work in works]


def test_a_receive_from_any_rank_takes_ones_own_too(world):
    world.run(among_others)


def sizes_differ(here):
    group, rank = here.group, here.rank
    for count in (2, 300_000):
        sent = group.send([np.zeros(count)], rank, 6)
        with pytest.raises(polyrank.MessageSizeError) as caught:
            group.recv([np.zeros(3)], rank, 6).wait()
        error = caught.value
        assert (error.from_rank, error.to_rank, error.tag) == (rank, rank, 6)
        assert (error.sent_bytes, error.buffer_bytes) == (8 * count, 24)
        if count > 2:
            with pytest.raises(polyrank.MessageSizeError):
                sent.wait()
    with pytest.raises(polyrank.MessageDTypeError):
        group.recv([np.zeros(3, np.int64)], rank, 7)
        group.send([np.zeros(3)], rank, 7).wait()
    # Nobody else has to do with it: the group goes on.
    total = np.ones(1)
    group.allreduce(total).wait()
    assert total[0] == here.size


def test_one_that_does_not_fit_is_an_error_of_its_calls_only(world):
    world.run(sizes_differ)


def never_received(here):
    for count in (4, 1_000_000):
        group = here.make_group(f"never received {count}")
        work = group.send([np.zeros(count)], here.rank)
        group.shutdown()
        if count == 4:
            assert work.wait()
        else:
            with pytest.raises(polyrank.AbortedError):
                work.wait()


def test_leaving_does_not_wait_for_ever_for_what_nobody_receives(pair):
    pair.run(never_received)
