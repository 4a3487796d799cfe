"""Permutations of the ranks' tensors, as JAX's `ppermute`."""

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from oracles import same, values

COUNTS = [0, 1, 1000, 70_001]


def permuted(here, pairs, count, dtype="float64"):
    """What this rank must get."""
    sources = [source for source, destination in pairs if destination == here.rank]
    if not sources:
        return np.zeros_like(values(here.rank, count, dtype))
    return values(sources[0], count, dtype)


def several_permutations(here):
    size = here.size
    ring = [(r, (r + 1) % size) for r in range(size)]
    mirror = [(r, size - 1 - r) for r in range(size)]
    # Rank 0 gets nothing, and the last one gives nothing.
    shift = [(r, r + 1) for r in range(size - 1)]
    array = np.array(ring, np.int16)
    for pairs in (ring, array, mirror, shift, [(size - 1, 0)], []):
        for count in COUNTS:
            output = np.full(count, -9.0)
            own = values(here.rank, count, "float64")
            here.group.ppermute(output, own, pairs).wait()
            same(output, permuted(here, pairs, count), (pairs, count))
            same(own, values(here.rank, count, "float64"), (pairs, count))


def test_several_permutations(world):
    world.run(several_permutations)


def in_place_and_views(here):
    shift = [[r, r + 1] for r in range(here.size - 1)]
    tensor = values(here.rank, 9, "int32")
    assert dist.ppermute(tensor, tensor, shift, here.group) is None
    same(tensor, permuted(here, shift, 9, "int32"))
    memory = np.full((2, 9), -9, np.int32)
    work = dist.ppermute(memory.T[:, 0], values(here.rank, 9, "int32"), shift, here.group, True)
    work.wait()
    same(memory[0], permuted(here, shift, 9, "int32"))
    assert (memory[1] == -9).all()


def test_in_place_and_views(trio):
    trio.run(in_place_and_views)


def what_is_refused(here):
    tensor = np.ones(2)
    for pairs, why in (
        ([(0, 2)], "destination rank must be from 0 to 1, got 2"),
        ([(0, 1), (0, 0)], "rank 0 is the source of two pairs"),
        ([(0, 1), (1, 1)], "rank 1 is the destination of two pairs"),
        ([(0, 1, 1)], "list of pairs.*got a list of 3 ranks"),
    ):
        with pytest.raises(polyrank.InvalidArgumentError, match=why):
            here.group.ppermute(np.zeros(2), tensor, pairs)
    with pytest.raises(polyrank.InvalidArgumentError, match="2 elements of f64, got 3 of f64"):
        here.group.ppermute(np.zeros(3), tensor, [])
    group = here.make_group("pairs that differ", timeout=20)
    with pytest.raises(polyrank.CollectiveMismatchError, match="rank [01]"):
        group.ppermute(np.zeros(2), tensor, [(0, 1)] if here.rank else []).wait()
        group.barrier().wait()


def test_what_is_refused(pair):
    pair.run(what_is_refused)
