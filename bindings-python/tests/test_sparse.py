"""Sums of sparse tensors, against dense arrays of NumPy."""

import numpy as np
import polyrank
import pytest
from polyrank import ReduceOp

INTEGERS = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
)
VALUES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.complex64)


def dense(shape, indices, values):
    """The array that has these entries."""
    array = np.zeros(shape + values.shape[1:], values.dtype)
    np.add.at(array, tuple(np.atleast_2d(indices)), values)
    return array


def given(seed, rank, shape, block, dtype, index_dtype):
    """Entries of a rank: none, one, or some, in any order, several at one place."""
    random = np.random.default_rng([seed, rank])
    count = (0, 1, 7, 40)[(seed + rank) % 4]
    indices = np.stack([random.integers(0, length, count) for length in shape])
    values = random.integers(-9, 9, (count, *block)).astype(dtype)
    return indices.astype(index_dtype), values


def sums(here, seed):
    group = here.make_group(f"sparse {here.size} {seed}")
    cases = [((6,), ()), ((5, 3), ()), ((2, 3, 4), (3,)), ((7,), (2, 2))]
    for number, (shape, block) in enumerate(cases):
        dtype = VALUES[(seed + number) % len(VALUES)]
        index_dtype = INTEGERS[(seed + number) % len(INTEGERS)]
        of = [given(seed + number, rank, shape, block, dtype, index_dtype)
              for rank in range(here.size)]
        indices, values = of[here.rank]
        summed = group.allreduce_sparse(indices, values)
        expected = sum(dense(shape, *one) for one in of).astype(dtype)
        assert (summed[0].dtype, summed[1].dtype) == (np.int64, dtype)
        np.testing.assert_array_equal(dense(shape, *summed), expected)
        # Each place once, in ascending order.
        places = list(zip(*summed[0], strict=True))
        assert places == sorted(set(zip(*np.concatenate([one[0] for one in of], 1), strict=True)))
        # Not contiguous, and a dimension that is not said.
        spread = np.zeros((len(values), *block, 2), dtype)
        spread[..., 0] = values
        again = group.allreduce_sparse(np.asfortranarray(indices), spread[..., 0])
        np.testing.assert_array_equal(again[1], summed[1])
        if len(shape) == 1:
            flat = group.allreduce_sparse(indices[0], values)
            np.testing.assert_array_equal(flat[0], summed[0][0])
            np.testing.assert_array_equal(flat[1], summed[1])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_sums_are_those_of_dense_arrays(pools, size):
    seed = int(np.random.default_rng().integers(1000))
    print("seed", seed)
    pools(size).run(sums, seed)


def averages(here):
    group = here.make_group("sparse averages")
    places = np.array([here.rank, 5])
    indices, values = group.allreduce_sparse(places, np.array([6.0, 3.0]), ReduceOp.AVG)
    np.testing.assert_array_equal(indices, [0, 1, 2, 5])
    np.testing.assert_array_equal(values, [2, 2, 2, 3])


def test_averages_divide_by_the_ranks(trio):
    trio.run(averages)


def refusals(here):
    group = here.make_group("sparse refusals")
    ones, odd = np.ones(2), here.rank == 2
    # What one rank refuses, or has differently, is an error on all.
    for indices, values, op, said in [
        ([0, -1], ones, ReduceOp.SUM, "one is -1"),
        ([0, 1, 2], ones, ReduceOp.SUM, r"\[3, ...\], not \[2\]"),
        (np.zeros((1, 1, 2), int), ones, ReduceOp.SUM, r"not \[1, 1, 2\]"),
        ([0.5, 1.0], ones, ReduceOp.SUM, "are integers, not f64"),
        ([0, 1], ones, ReduceOp.MAX, "SUM or AVG"),
    ]:
        indices = np.asarray(indices)
        mine = (indices, values, op) if odd else (np.arange(2), ones, ReduceOp.SUM)
        with pytest.raises(polyrank.InvalidArgumentError,
                           match=said if odd else "rank 2 refused what it was given"):
            group.allreduce_sparse(*mine)
    for indices, values, op, said in [
        (np.zeros((2, 2), int), ones, ReduceOp.SUM, "indices of [12] dimensions, but rank"),
        (np.arange(2), np.ones(2, np.float32), ReduceOp.SUM, "values of f(32|64), but rank"),
        (np.arange(2), np.ones((2, 3)), ReduceOp.SUM,
         r"entries of another shape, but rank \d has those of \["),
        (np.arange(2), ones, ReduceOp.AVG, "(SUM|AVG), but rank"),
    ]:
        mine = (indices, values, op) if odd else (np.arange(2), ones, ReduceOp.SUM)
        with pytest.raises(polyrank.InvalidArgumentError, match=f"rank \\d has {said}"):
            group.allreduce_sparse(*mine)
    indices, values = group.allreduce_sparse(np.arange(2), ones)
    assert (values == 3).all() and list(indices) == [0, 1]


def test_what_cannot_be_summed_is_refused_on_all_ranks(trio):
    trio.run(refusals)


def of_the_default_group(here):
    store = polyrank.PrefixStore("sparse default", here.store)
    polyrank.init_process_group(store=store, rank=here.rank, world_size=here.size)
    places, values = np.array([7, here.rank]), np.array([1.0, 2.0])
    for group in (None, polyrank.default_group()):
        indices, summed = polyrank.all_reduce_sparse(places, values, group=group)
        assert (list(indices), list(summed)) == ([0, 1, 7], [2, 2, 2])
    indices, summed = polyrank.all_reduce_sparse(places, values, ReduceOp.AVG, timeout=20)
    assert (list(indices), list(summed)) == ([0, 1, 7], [1, 1, 1])
    alone = polyrank.new_group([0])
    outcome = polyrank.all_reduce_sparse(places, values, group=alone)
    if here.rank == 0:
        assert [list(one) for one in outcome] == [[0, 7], [2, 1]]
    else:
        assert outcome is None
    polyrank.destroy_process_group()


def test_the_free_function_sums_in_the_default_group_and_in_others(pair):
    pair.run(of_the_default_group)
