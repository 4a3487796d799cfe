"""Prefix reductions against NumPy: `cumsum` and its like over the ranks, for each operator."""

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from oracles import FACTOR, SUPPORTED, reduced, same, values

COUNTS = [0, 1, 3, 1000, 70_001]


def check(here, tensor, prefixes, what, **arguments):
    """Both forms, of which `prefixes` are the inclusive results; rank 0 keeps what it has after
    the exclusive one."""
    scanned, before = tensor.copy(), tensor.copy()
    here.group.scan(scanned, **arguments).wait()
    here.group.exscan(before, **arguments).wait()
    same(scanned, prefixes[here.rank], what)
    same(before, prefixes[here.rank - 1] if here.rank else tensor, what)


def sums_of_every_length(here):
    for count in COUNTS:
        parts = [values(r, count, "int64") for r in range(here.size)]
        check(here, parts[here.rank], np.cumsum(parts, axis=0), count)


def test_sums(world):
    world.run(sums_of_every_length)


def every_operator_and_dtype(here):
    for name, dtypes in SUPPORTED.items():
        premul = name == "PREMUL_SUM"
        op = polyrank.premul_sum(FACTOR) if premul else getattr(polyrank.ReduceOp, name)
        for dtype in dtypes:
            if name == "AVG" and dtype.startswith("complex"):
                continue  # NumPy's quotient rounds otherwise; cases.json has these
            parts = [values(r, 7, dtype, name, here.size) for r in range(here.size)]
            prefixes = [reduced(name, parts[: r + 1]) for r in range(here.size)]
            check(here, parts[here.rank], prefixes, (name, dtype), op=op)


def test_every_operator_and_dtype(trio):
    trio.run(every_operator_and_dtype)


def averages(here):
    parts = np.stack([np.arange(5.0) + 10 * r for r in range(here.size)])
    ranks = np.arange(1, here.size + 1)[:, None]
    expected = np.cumsum(parts, axis=0) / ranks
    check(here, parts[here.rank], expected, "AVG", op=polyrank.ReduceOp.AVG)


def test_averages_are_of_the_ranks_that_were_reduced(world):
    world.run(averages)


def views_and_free_functions(here):
    parts = [values(r, 12, "int32").reshape(3, 4) for r in range(here.size)]
    sums = np.cumsum(parts, axis=0)
    for at in (np.s_[:, ::2], np.s_[::2], np.s_[:, ::-1]):
        memory = parts[here.rank].copy()
        assert dist.scan(memory[at], group=here.group) is None
        expected = parts[here.rank].copy()
        expected[at] = sums[here.rank][at]
        same(memory, expected, at)
        work = dist.exscan(memory[at], polyrank.ReduceOp.MAX, here.group, async_op=True)
        work.wait()
        if here.rank:
            expected[at] = np.max(sums[: here.rank], axis=0)[at]
        same(memory, expected, at)


def test_views_and_free_functions(pair):
    pair.run(views_and_free_functions)


def what_is_refused(here):
    with pytest.raises(polyrank.UnsupportedDTypeError):
        here.group.scan(np.zeros(2), polyrank.ReduceOp.BXOR)
    group = here.make_group("disagreeing prefixes", timeout=20)
    tensor = np.zeros(2 + here.rank)
    expected = r"rank [01] runs scan of [23] f64 with SUM.* rank [01] runs scan of [23] f64"
    with pytest.raises(polyrank.CollectiveMismatchError, match=expected):
        group.scan(tensor).wait()
        # Rank 0 needs nobody for the result, and learns of it afterwards.
        group.barrier().wait()


def test_what_is_refused(pair):
    pair.run(what_is_refused)
