"""Every dtype with every reduction operator, against NumPy."""

import datetime

import numpy as np
import pytest

import polyrank
from oracles import DTYPES, FACTOR, FLOATS, SUPPORTED, dtype_of, reduced, same, values

COUNTS = [0, 1, 3, 1000]


def operator(name):
    if name == "PREMUL_SUM":
        return polyrank.premul_sum(FACTOR)
    return getattr(polyrank.ReduceOp, name)


def allreduce_everything(here, counts):
    for op, dtypes in SUPPORTED.items():
        for dtype in dtypes:
            for count in counts:
                parts = [values(r, count, dtype, op, here.size) for r in range(here.size)]
                tensor = parts[here.rank].copy()
                here.group.allreduce(tensor, operator(op)).wait()
                same(tensor, reduced(op, parts), (op, dtype, count))


def test_allreduce_of_every_dtype_and_operator(world):
    counts = COUNTS if world.size <= 3 else [3]
    world.run(allreduce_everything, counts)


def reduce_and_scatter_everything(here):
    last = here.size - 1
    for op, dtypes in SUPPORTED.items():
        for dtype in dtypes:
            parts = [values(r, 5, dtype, op, here.size) for r in range(here.size)]
            tensor = parts[here.rank].copy()
            here.group.reduce(tensor, last, operator(op)).wait()
            expected = reduced(op, parts) if here.rank == last else parts[here.rank]
            same(tensor, expected, ("reduce", op, dtype))

            whole = [values(r, 2 * here.size, dtype, op, here.size) for r in range(here.size)]
            mine = np.zeros(2, dtype_of(dtype))
            given = whole[here.rank].copy()
            here.group.reduce_scatter_single(mine, given, operator(op)).wait()
            expected = reduced(op, whole)[2 * here.rank : 2 * here.rank + 2]
            same(mine, expected, ("reduce_scatter", op, dtype))
            same(given, whole[here.rank], "the input of reduce_scatter stays")


def test_reduce_and_reduce_scatter_of_every_dtype_and_operator(trio):
    trio.run(reduce_and_scatter_everything)


def refuse_what_has_no_meaning(here):
    for op, dtypes in SUPPORTED.items():
        for dtype in set(DTYPES) - set(dtypes):
            tensor = values(here.rank, 3, dtype)
            before = tensor.copy()
            with pytest.raises(polyrank.UnsupportedDTypeError) as caught:
                here.group.allreduce(tensor, operator(op))
            assert isinstance(caught.value, TypeError)
            assert op in str(caught.value)
            same(tensor, before, "a refused call changes nothing")
    # The group is as good as before.
    total = np.ones(2)
    here.group.allreduce(total).wait()
    assert total.tolist() == [here.size] * 2


def test_operators_without_meaning_are_type_errors(trio):
    trio.run(refuse_what_has_no_meaning)


def large(here):
    for count in (2**20 + 1, 2**16):
        tensor = values(here.rank, count, "float32")
        parts = [values(r, count, "float32") for r in range(here.size)]
        here.group.allreduce(tensor).wait()
        same(tensor, reduced("SUM", parts), count)


def test_large_allreduce(pools):
    for size in (2, 3):
        pools(size).run(large)


def nan_and_wrapping(here):
    for dtype in FLOATS:
        for op in ("MIN", "MAX", "SUM"):
            tensor = np.array([1.0, 2.0], dtype_of(dtype))
            if here.rank == here.size - 1:
                tensor[0] = np.nan
            here.group.allreduce(tensor, operator(op)).wait()
            assert np.isnan(tensor[0]), (dtype, op)
            assert not np.isnan(tensor[1]), (dtype, op)
    tensor = np.array([250, 3], np.uint8)
    here.group.allreduce(tensor).wait()
    assert tensor.tolist() == [250 * here.size % 256, 3 * here.size]


def test_nan_propagates_and_integers_wrap(trio):
    trio.run(nan_and_wrapping)


def random_bits(here, seed):
    # Values whose sum depends on the order of addition: all ranks must agree on it.
    random = np.random.default_rng([seed, here.rank])
    tensor = random.standard_normal(10_007).astype(np.float32)
    here.group.allreduce(tensor, polyrank.ReduceOp.AVG).wait()
    return tensor.tobytes()


@pytest.mark.parametrize("seed", [1, 2])
def test_all_ranks_get_the_same_bits(world, seed):
    results = world.run(random_bits, seed)
    assert all(result == results[0] for result in results), f"seed {seed}"


def needs_a_factor(here):
    with pytest.raises(polyrank.InvalidTypeError, match="premul_sum"):
        here.group.allreduce(np.ones(2), polyrank.ReduceOp.PREMUL_SUM)


def test_bare_premul_sum_is_a_type_error(pair):
    pair.run(needs_a_factor)


def test_a_factor_that_is_no_number_is_a_type_error_of_polyrank():
    for make in (polyrank.premul_sum, polyrank.make_premul_sum, polyrank.ReduceOp.premul_sum):
        with pytest.raises(polyrank.InvalidTypeError, match="'factor' must be float, not str"):
            make("2")


def takes_no_such_elements(here):
    for array in (np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]")):
        with pytest.raises(polyrank.InvalidTypeError, match="known element types: bool, u8"):
            here.group.allreduce(array)
    with pytest.raises(polyrank.InvalidArgumentError, match=r"must not be negative, not -1\.0 s"):
        here.group.barrier(timeout=datetime.timedelta(seconds=-1))


def test_what_cannot_be_an_argument_is_an_error_of_polyrank(pair):
    pair.run(takes_no_such_elements)
