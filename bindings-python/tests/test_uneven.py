"""Flat tensors of uneven parts: the `v` forms, against NumPy."""

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from oracles import same, values


def rows_of(size, shift=0):
    """Uneven numbers of rows, one of them 0."""
    return [(rank * 2 + 3 + shift) % 5 for rank in range(size)]


def parts_of(rows, dtype="int32", width=3):
    return [values(r, n * width, dtype).reshape(n, width) for r, n in enumerate(rows)]


def gather_and_scatter(here):
    rows = rows_of(here.size)
    parts = parts_of(rows)
    whole = np.concatenate(parts)
    output = np.full_like(whole, -9)
    here.group.all_gather_v(output, parts[here.rank], rows).wait()
    same(output, whole)
    # An array of integers is as good as a list.
    output.fill(-9)
    here.group.all_gather_v(output, parts[here.rank], np.array(rows, np.uint16)).wait()
    same(output, whole)
    for root in range(here.size):
        is_root = here.rank == root
        output = np.full_like(whole, -9)
        here.group.gather_v(
            output if is_root else None, parts[here.rank], rows if is_root else None, root
        ).wait()
        same(output, whole if is_root else np.full_like(whole, -9), root)
        own = np.full_like(parts[here.rank], -9)
        # Sizes of the others are not looked at.
        here.group.scatter_v(own, whole if is_root else None, rows if is_root else [7], root).wait()
        same(own, parts[here.rank], root)


def test_gather_and_scatter(world):
    world.run(gather_and_scatter)


def reduce_scatter(here):
    rows = rows_of(here.size)
    bounds = np.cumsum([0, *rows])
    whole = [values(r, bounds[-1] * 2, "float64").reshape(-1, 2) for r in range(here.size)]
    for op, expected in (("SUM", sum(whole)), ("MAX", np.max(whole, axis=0))):
        output = np.full((rows[here.rank], 2), -9.0)
        reduce_op = getattr(polyrank.ReduceOp, op)
        here.group.reduce_scatter_v(output, whole[here.rank], rows, reduce_op).wait()
        same(output, expected[bounds[here.rank] : bounds[here.rank + 1]], op)


def test_reduce_scatter(world):
    world.run(reduce_scatter)


def all_to_all(here):
    sent = [[(a + 2 * b) % 4 for b in range(here.size)] for a in range(here.size)]
    data = [values(r, sum(rows), "int16") for r, rows in enumerate(sent)]
    cut = [np.split(d, np.cumsum(rows)[:-1]) for d, rows in zip(data, sent)]
    came = [rows[here.rank] for rows in sent]
    expected = np.concatenate([pieces[here.rank] for pieces in cut])
    for function in (here.group.all_to_all_v, here.group.all_to_all_v_single):
        output = np.full(sum(came), -9, np.int16)
        function(output, data[here.rank], came, sent[here.rank]).wait()
        same(output, expected)


def test_all_to_all(world):
    world.run(all_to_all)


def views_and_free_functions(here):
    rows = rows_of(here.size, 1)
    parts = parts_of(rows, width=4)
    whole = np.concatenate(parts)
    memory = np.full((len(whole), 8), -9, np.int32)
    assert dist.all_gather_v(memory[:, ::2], parts[here.rank], rows, here.group) is None
    same(memory[:, ::2], whole)
    assert (memory[:, 1::2] == -9).all()
    spaced = np.zeros((len(whole), 8), np.int32)
    spaced[:, 1::2] = whole
    own = np.zeros_like(parts[here.rank])
    dist.reduce_scatter_v(own, spaced[:, 1::2], rows, group=here.group)
    same(own, parts[here.rank] * here.size)
    is_last = here.rank == here.size - 1
    gathered = np.zeros_like(whole) if is_last else None
    last, group = here.size - 1, here.group
    at_root = rows if is_last else None
    dist.gather_v(parts[here.rank], gathered, at_root, group=group, group_dst=last)
    if is_last:
        same(gathered, whole)
    dist.scatter_v(own, gathered, at_root, group=group, group_src=last)
    same(own, parts[here.rank])
    nothing = [0] * here.size
    work = dist.all_to_all_v(own[:0], own[:0], nothing, nothing, group, async_op=True)
    work.wait()


def test_views_and_free_functions(trio):
    trio.run(views_and_free_functions)


def what_is_wrong_with_sizes(here):
    own, whole = np.zeros((2, 3)), np.zeros((4, 3))
    gather = here.group.all_gather_v
    invalid = polyrank.InvalidArgumentError
    with pytest.raises(invalid, match=r"splits \[2, 1\] add up to 3, .*shape \[4, 3\] has 4 rows"):
        gather(whole, own, [2, 1])
    with pytest.raises(invalid, match=r"3 splits, 2 ranks"):
        gather(whole, own, [2, 1, 1])
    with pytest.raises(invalid, match=r"'output_split_sizes' has -1 rows: .* negative"):
        gather(whole, own, [5, -1])
    with pytest.raises(invalid, match=r"add up to"):
        gather(whole, own, [2**62, 2**62])
    message = (rf"rank {here.rank} gives and gets .* 6 elements of input \(shape \[2, 3\]\) and "
               r"3 elements of output \(shape \[1, 3\]\)")
    with pytest.raises(invalid, match=message):
        gather(whole, own, [1, 3] if here.rank == 0 else [3, 1])
    with pytest.raises(invalid, match="specify both dst and group_dst"):
        polyrank.gather_v(own, dst=0, group_dst=0, group=here.group)
    with pytest.raises(invalid, match=r"splits \[1, 1\] add up to 2"):
        here.group.reduce_scatter_v(own, whole, [1, 1])
    # Equal parts where no sizes are given.
    gather(whole, own + here.rank, []).wait()
    assert whole[:, 0].tolist() == [0, 0, 1, 1]


def test_what_is_wrong_with_sizes(pair):
    pair.run(what_is_wrong_with_sizes)


def ranks_that_disagree(here):
    group = here.make_group("other sizes", timeout=20)
    rows = [2, 2, 2] if here.rank < 2 else [1, 3, 2]
    with pytest.raises(polyrank.CollectiveMismatchError, match="other sizes of blocks"):
        group.all_gather_v(np.zeros(6), np.zeros(2), rows).wait()
    group = here.make_group("another size than the root's", timeout=20)
    # Rank 1 has another number of rows than the root says.
    output = np.zeros(5) if here.rank == 0 else None
    rows = [2, 1, 2] if here.rank == 0 else None
    with pytest.raises(polyrank.CollectiveMismatchError, match=r"of (16|8) bytes"):
        group.gather_v(output, np.zeros(2), rows, 0).wait()
        group.barrier().wait()


def test_ranks_that_disagree(trio):
    trio.run(ranks_that_disagree)
