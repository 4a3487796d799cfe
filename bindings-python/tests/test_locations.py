"""MAXLOC and MINLOC: pairs of a value and the index of whose it is, against NumPy."""

import numpy as np
import pytest

import polyrank
from oracles import FLOATS, INTEGERS, dtype_of, same


def pairs(rank, count, dtype):
    """The value changes with the rank and repeats, so that there are ties."""
    steps = np.arange(count)
    made = np.zeros((count, 2), dtype_of(dtype))
    made[:, 0] = (steps * 7 + rank * 3) % 5
    made[:, 1] = (rank + 5) % 7
    return made


def located(op, parts):
    """Whose value is the greatest or least; of ties, the lowest index."""
    best = parts[0].copy()
    for part in parts[1:]:
        is_better = part[:, 0] > best[:, 0] if op == "MAXLOC" else part[:, 0] < best[:, 0]
        ties = (part[:, 0] == best[:, 0]) & (part[:, 1] < best[:, 1])
        best[is_better | ties] = part[is_better | ties]
    return best


def everything(here, counts):
    for name in ("MAXLOC", "MINLOC"):
        op = getattr(polyrank.ReduceOp, name)
        for dtype in INTEGERS + FLOATS:
            for count in counts:
                parts = [pairs(r, count, dtype) for r in range(here.size)]
                tensor = parts[here.rank].copy()
                here.group.allreduce(tensor, op).wait()
                same(tensor, located(name, parts), (name, dtype, count))

                tensor = parts[here.rank].copy()
                here.group.reduce(tensor, here.size - 1, op).wait()
                if here.rank == here.size - 1:
                    same(tensor, located(name, parts), (name, dtype, count))

                whole = [pairs(r, count * here.size, dtype) for r in range(here.size)]
                mine = np.zeros((count, 2), dtype_of(dtype))
                here.group.reduce_scatter_single(mine, whole[here.rank].copy(), op).wait()
                expected = located(name, whole)[count * here.rank : count * (here.rank + 1)]
                same(mine, expected, ("reduce_scatter", name, dtype, count))


def test_every_dtype(world):
    world.run(everything, [0, 1, 7, 1001] if world.size <= 3 else [3])


def large(here):
    for count in (70_001, 1_000_003):
        parts = [pairs(r, count, "float32") for r in range(here.size)]
        for layout in (np.ascontiguousarray, np.asfortranarray):
            tensor = layout(parts[here.rank])
            here.group.allreduce(tensor, polyrank.ReduceOp.MAXLOC).wait()
            same(np.ascontiguousarray(tensor), located("MAXLOC", parts))


def test_large_ones_and_others_order_of_elements(trio):
    trio.run(large)


def specials(here):
    # One dimension: pairs one after the other. NaN wins, with the lowest index of those with it.
    nan = np.nan
    mine = [[nan, 4, 1, 0, -0.0, 3], [nan, 2, nan, 5, 0.0, 1], [7, 0, 2, 9, -1.0, 2]][here.rank]
    most, least = np.array(mine), np.array(mine)
    here.group.allreduce(most, polyrank.ReduceOp.MAXLOC).wait()
    here.group.allreduce(least, polyrank.ReduceOp.MINLOC).wait()
    np.testing.assert_array_equal(most, [nan, 2, nan, 5, 0, 1])
    np.testing.assert_array_equal(least, [nan, 2, nan, 5, -1, 2])


def test_nan_and_zeros(trio):
    trio.run(specials)


def refused(here):
    for op in (polyrank.ReduceOp.MAXLOC, polyrank.ReduceOp.MINLOC):
        with pytest.raises(polyrank.InvalidArgumentError, match=r"must be even.*\[2, 3\]"):
            here.group.allreduce(np.zeros((2, 3)), op)
        for dtype in ("bool", "complex64"):
            with pytest.raises(polyrank.UnsupportedDTypeError):
                here.group.allreduce(np.zeros((3, 2), dtype), op)


def test_what_is_no_pairs_is_refused(pair):
    pair.run(refused)


def normalised(here):
    for name, function in (("LAND", np.all), ("LOR", np.any)):
        tensor = np.array([0, 5, -3, 1], np.int32)
        here.group.allreduce(tensor, getattr(polyrank.ReduceOp, name)).wait()
        assert tensor.tolist() == [0, 1, 1, 1], function
        given = np.array([7, 0] * here.size, np.uint8)
        mine = np.zeros(2, np.uint8)
        here.group.reduce_scatter_single(mine, given, getattr(polyrank.ReduceOp, name)).wait()
        assert mine.tolist() == [1, 0]
    tensor = np.array([0, 5, -3, 1], np.int64)
    options = polyrank.AllreduceOptions(reduce_op=polyrank.ReduceOp.LXOR)
    here.group.allreduce([tensor], options).wait()
    assert tensor.tolist() == [0, *[here.size % 2] * 3]


def test_logical_results_are_0_or_1(world):
    world.run(normalised)
