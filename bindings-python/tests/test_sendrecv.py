"""A send and a receive that go together: around rings, in pairs, to oneself, in place."""

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from oracles import same, values

# Nothing, a number, a message that is sent unasked, and one that its receiver must ask for.
COUNTS = [0, 1, 1000, 500_000]


def around_the_ring(here):
    after, before = (here.rank + 1) % here.size, (here.rank - 1) % here.size
    for count in COUNTS:
        came = np.full(count, -9.0)
        work = here.group.sendrecv(values(here.rank, count, "float64"), after, came, before)
        assert work.wait() is True
        assert work.source_rank() == before
        same(came, values(before, count, "float64"), count)


def test_around_the_ring(world):
    world.run(around_the_ring)


def in_place_with_two_tags(here):
    """Pairs of neighbours exchange in the memory of one tensor; who has none is its own."""
    partner = here.rank ^ 1 if here.rank ^ 1 < here.size else here.rank
    tags = {"send_tag": 3 + here.rank, "recv_tag": 3 + partner}
    for count in COUNTS:
        tensor = values(here.rank, count, "int32")
        here.group.sendrecv(tensor, partner, tensor, partner, **tags).wait()
        same(tensor, values(partner, count, "int32"), count)


def test_in_place_with_two_tags(world):
    world.run(in_place_with_two_tags)


def views_and_other_calls(here):
    """Its halves meet sends and receives of the other rank; tensors may have gaps."""
    other = 1 - here.rank
    memory = np.zeros(8, np.int16)
    if here.rank == 0:
        own = np.arange(8, dtype=np.int16)[::2]
        assert dist.sendrecv(own, other, memory[1::2], other, here.group, 5, 6) is None
        same(memory, np.array([0, 9, 0, 8, 0, 7, 0, 6], np.int16))
    else:
        dist.send(np.array([9, 8, 7, 6], np.int16), group=here.group, group_dst=other, tag=6)
        dist.recv(memory[:4], group=here.group, group_src=other, tag=5)
        same(memory[:4], np.array([0, 2, 4, 6], np.int16))
    work = dist.sendrecv(memory[:2], other, memory[2:4], other, here.group, async_op=True)
    work.wait()


def test_views_and_other_calls(pair):
    pair.run(views_and_other_calls)


def what_is_refused(here):
    tensor = np.zeros(2)
    for ranks, role in (((here.size, 0), "destination"), ((0, here.size), "source")):
        message = rf"sendrecv: {role} rank must be from 0 to {here.size - 1}, got {here.size}"
        with pytest.raises(polyrank.InvalidArgumentError, match=message):
            here.group.sendrecv(tensor, ranks[0], tensor, ranks[1])
    # To oneself, so that the other ranks need not learn of it.
    with pytest.raises(polyrank.MessageSizeError, match="16 bytes"):
        here.group.sendrecv(tensor, here.rank, np.zeros(3), here.rank).wait()
    with pytest.raises(polyrank.MessageDTypeError):
        here.group.sendrecv(tensor, here.rank, np.zeros(4, np.int32), here.rank).wait()


def test_what_is_refused(pair):
    pair.run(what_is_refused)
