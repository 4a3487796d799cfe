"""Every collective that moves data, in every size and form, against NumPy."""

import numpy as np
import pytest

import polyrank
from oracles import DTYPES, dtype_of, reduced, same, values

COUNTS = [0, 1, 3, 1000]


def sizes_of(size):
    """Uneven sizes, one of them 0."""
    return [(rank * 2 + 3) % 5 for rank in range(size)]


def broadcast_from_every_root(here):
    for root in range(here.size):
        for count in COUNTS:
            tensor = values(here.rank, count, "float32")
            here.group.broadcast(tensor, root).wait()
            same(tensor, values(root, count, "float32"), (root, count))


def test_broadcast(world):
    world.run(broadcast_from_every_root)


def broadcast_every_dtype(here):
    for dtype in DTYPES:
        tensor = values(here.rank, 5, dtype)
        here.group.broadcast(tensor, here.size - 1).wait()
        same(tensor, values(here.size - 1, 5, dtype), dtype)


def test_broadcast_of_every_dtype(pair):
    pair.run(broadcast_every_dtype)


def reduce_to_every_root(here):
    for root in range(here.size):
        parts = [values(r, 7, "int32") for r in range(here.size)]
        tensor = parts[here.rank].copy()
        here.group.reduce(tensor, root).wait()
        same(tensor, reduced("SUM", parts) if here.rank == root else parts[here.rank], root)


def test_reduce(world):
    world.run(reduce_to_every_root)


def gather_all(here):
    for count in COUNTS:
        expected = [values(r, count, "float64") for r in range(here.size)]
        outputs = [np.full(count, -9.0) for _ in range(here.size)]
        work = here.group.allgather(outputs, expected[here.rank])
        assert work.wait() is True
        for rank, output in enumerate(outputs):
            same(output, expected[rank], (count, rank))
        flat = np.full(count * here.size, -9.0)
        here.group.all_gather_single(flat, expected[here.rank]).wait()
        same(flat, np.concatenate(expected), count)
        stacked = np.full((here.size, count), -9.0)
        here.group.all_gather_single(stacked, expected[here.rank]).wait()
        same(stacked, np.stack(expected), count)


def test_allgather(world):
    world.run(gather_all)


def gather_all_uneven(here):
    sizes = sizes_of(here.size)
    expected = [values(r, sizes[r], "int16") for r in range(here.size)]
    outputs = [np.zeros(n, np.int16) for n in sizes]
    here.group.allgather(outputs, expected[here.rank]).wait()
    for rank, output in enumerate(outputs):
        same(output, expected[rank], rank)


def test_allgather_of_uneven_sizes(world):
    world.run(gather_all_uneven)


def gather_and_scatter(here):
    sizes = sizes_of(here.size)
    for root in {0, here.size // 2, here.size - 1}:
        parts = [values(r, sizes[r], "float32") for r in range(here.size)]
        outputs = [np.zeros(n, np.float32) for n in sizes] if here.rank == root else []
        here.group.gather(outputs, parts[here.rank], root).wait()
        for rank, output in enumerate(outputs):
            same(output, parts[rank], ("gather", root, rank))
        mine = np.zeros(sizes[here.rank], np.float32)
        here.group.scatter(mine, parts if here.rank == root else [], root).wait()
        same(mine, parts[here.rank], ("scatter", root))


def test_gather_and_scatter_of_uneven_sizes(world):
    world.run(gather_and_scatter)


def gather_in_one_tensor(here):
    options = polyrank.GatherOptions()
    options.root_rank = here.size - 1
    flat = np.zeros(3 * here.size, np.int64) if here.rank == options.root_rank else None
    here.group.gather_single(flat, values(here.rank, 3, "int64"), options).wait()
    if flat is not None:
        parts = [values(r, 3, "int64") for r in range(here.size)]
        same(flat, np.concatenate(parts))


def test_gather_single(trio):
    trio.run(gather_in_one_tensor)


def reduce_scatter_uneven(here):
    sizes = sizes_of(here.size)
    ranks = range(here.size)
    whole = [[values(r + i, sizes[i], "float32") for i in ranks] for r in ranks]
    mine = np.zeros(sizes[here.rank], np.float32)
    here.group.reduce_scatter(mine, whole[here.rank]).wait()
    same(mine, reduced("SUM", [whole[r][here.rank] for r in ranks]))


def test_reduce_scatter_of_uneven_sizes(world):
    world.run(reduce_scatter_uneven)


def all_to_all(here):
    # Rank r sends (r + i) % 3 elements to rank i.
    def block(sender, receiver):
        return values(sender * 10 + receiver, (sender + receiver) % 3, "int32")

    inputs = [block(here.rank, r) for r in range(here.size)]
    expected = [block(r, here.rank) for r in range(here.size)]
    outputs = [np.zeros(len(e), np.int32) for e in expected]
    here.group.alltoall(outputs, inputs).wait()
    for rank, output in enumerate(outputs):
        same(output, expected[rank], rank)

    flat = np.zeros(sum(map(len, expected)), np.int32)
    here.group.all_to_all_single(
        flat, np.concatenate(inputs), [len(e) for e in expected], [len(i) for i in inputs]
    ).wait()
    same(flat, np.concatenate(expected), "split sizes")

    rows = np.arange(2 * here.size * 3, dtype=np.float64).reshape(2 * here.size, 3) + here.rank
    got = np.zeros_like(rows)
    here.group.all_to_all_single(got, rows).wait()
    base = np.arange(2 * here.size * 3, dtype=np.float64).reshape(here.size, 2, 3)[here.rank]
    same(got, np.concatenate([base + r for r in range(here.size)]), "equal parts")


def test_alltoall(world):
    world.run(all_to_all)


def all_to_all_of_some_even_ranks(here):
    # Only ranks 0 and 1 know that their blocks are not all of one size, and which are long.
    def block(sender, receiver, count, turn):
        longer = {sender, receiver} == {0, 1} and turn % 3 == 0
        return values(sender * 10 + receiver + turn, count + 700 * longer, "int64")

    ranks = range(here.size)
    for turn in range(60):
        count = [0, 1, 7, 300][turn % 4]
        inputs = [block(here.rank, r, count, turn) for r in ranks]
        expected = [block(r, here.rank, count, turn) for r in ranks]
        outputs = [np.zeros(len(e), np.int64) for e in expected]
        work = here.group.alltoall(outputs, inputs)
        total = np.full(1, turn)
        here.group.allreduce(total).wait()
        work.wait()
        assert total[0] == turn * here.size
        for rank, output in enumerate(outputs):
            same(output, expected[rank], (turn, rank))


def test_alltoall_whose_blocks_are_of_one_size_on_some_ranks(world):
    world.run(all_to_all_of_some_even_ranks)


def bad_splits(here):
    tensor = np.zeros(4)
    for outputs, inputs in (([1] * here.size, []), ([1] * (here.size + 1), [])):
        with pytest.raises(ValueError):
            here.group.all_to_all_single(np.zeros(2 * here.size + 5), tensor, outputs, inputs)
    with pytest.raises(ValueError, match="divide"):
        odd = np.zeros(2 * here.size + 1)
        here.group.all_to_all_single(odd, odd.copy())
    with pytest.raises(ValueError, match="divide"):
        rows = np.zeros((1, here.size))
        here.group.all_to_all_single(rows, rows.copy())
    here.group.barrier().wait()


def test_wrong_splits_are_value_errors(trio):
    trio.run(bad_splits)


def barriers(here):
    for _ in range(20):
        here.group.barrier().wait()
    assert here.group.barrier(timeout=5).wait()


def test_barrier(world):
    world.run(barriers)


def lists_and_coalesced(here):
    # A list is reduced over the ranks and over the list: every tensor gets the same.
    several = [np.full(3, 1.0 + here.rank), np.full(3, 10.0)]
    here.group.allreduce(several).wait()
    expected = np.full(3, sum(1.0 + r for r in range(here.size)) + 10.0 * here.size)
    for tensor in several:
        same(tensor, expected)
    # Coalesced tensors are each reduced for themselves, and may differ in size.
    separate = [np.full(2, float(here.rank)), np.full(5, 1.0), np.zeros(0)]
    here.group.allreduce_coalesced(separate).wait()
    same(separate[0], np.full(2, float(sum(range(here.size)))))
    same(separate[1], np.full(5, float(here.size)))
    outputs = [np.zeros(here.size), np.zeros(2 * here.size)]
    inputs = [np.full(1, float(here.rank)), np.full(2, float(here.rank))]
    here.group.all_gather_single_coalesced(outputs, inputs).wait()
    same(outputs[0], np.arange(here.size, dtype=float))
    same(outputs[1], np.repeat(np.arange(here.size, dtype=float), 2))
    mine = [np.zeros(1), np.zeros(2)]
    whole = [np.arange(here.size, dtype=float), np.ones(2 * here.size)]
    here.group.reduce_scatter_single_coalesced(mine, whole).wait()
    same(mine[0], np.full(1, float(here.rank * here.size)))
    same(mine[1], np.full(2, float(here.size)))
    # Outputs come by rank, as in c10d: its list has a tensor for each input.
    by_rank = [[np.zeros(2), np.zeros(3, np.int32)] for _ in range(here.size)]
    inputs = [np.full(2, here.rank + 0.5), np.arange(3, dtype=np.int32) + 10 * here.rank]
    here.group.allgather_coalesced(by_rank, inputs).wait()
    for rank, (halves, counted) in enumerate(by_rank):
        assert halves.tolist() == [rank + 0.5] * 2
        assert counted.tolist() == [10 * rank, 10 * rank + 1, 10 * rank + 2]
    with pytest.raises(ValueError, match="expected 3 lists of output tensors, one for each rank"):
        here.group.allgather_coalesced([[np.zeros(2)] * 3, [np.zeros(3)] * 3], inputs)
    with pytest.raises(ValueError, match="rank 0 must have 2 output tensors, one for each input"):
        here.group.allgather_coalesced([[np.zeros(2)]] * 3, inputs)


def test_lists_and_coalesced_forms(trio):
    trio.run(lists_and_coalesced)


def strided(here):
    total = float(sum(range(1, here.size + 1)))
    base = np.full(12, here.rank + 1.0)
    for view in (base[::2], base.reshape(3, 4).T, base[::-1], base.reshape(3, 4)[:, 1]):
        base[:] = -1.0
        view[...] = here.rank + 1.0
        touched = base == here.rank + 1.0
        here.group.allreduce(view).wait()
        assert (view == total).all()
        assert (base[~touched] == -1.0).all(), "neighbours of a strided tensor stay"
    order = np.arange(6.0).reshape(2, 3).T + 100 * here.rank
    here.group.broadcast(order, here.size - 1).wait()
    same(order, np.arange(6.0).reshape(2, 3).T + 100 * (here.size - 1))
    grid = np.zeros((2, here.size))
    outputs = [grid[:, r] for r in range(here.size)]
    here.group.allgather(outputs, (np.arange(4.0) + here.rank)[::2]).wait()
    same(grid, np.stack([np.arange(4.0)[::2] + r for r in range(here.size)]).T.copy())
    out = np.zeros((here.size, 4))[:, ::2]
    given = np.arange(4.0 * here.size).reshape(4, here.size).T[:, ::2] + here.rank
    here.group.all_to_all_single(out, given).wait()
    plain = np.arange(4.0 * here.size).reshape(4, here.size).T[:, ::2][here.rank]
    same(out.copy(), np.stack([plain + r for r in range(here.size)]))


def test_strided_tensors(trio):
    trio.run(strided)


def odd_memory(here):
    scalar = np.array(2.0)
    here.group.allreduce(scalar).wait()
    assert scalar == 2.0 * here.size
    empty = np.zeros((3, 0, 2))
    here.group.allreduce(empty).wait()
    unaligned = np.zeros(8 * 5 + 1, np.uint8)[1:].view(np.float64)
    unaligned[:] = here.rank
    here.group.allreduce(unaligned).wait()
    assert (unaligned == sum(range(here.size))).all()
    same_tensor = np.full(2 * here.size, float(here.rank))
    mine = same_tensor[2 * here.rank : 2 * here.rank + 2]
    here.group.all_gather_single(same_tensor, mine).wait()
    same(same_tensor, np.repeat(np.arange(float(here.size)), 2), "in place, as NCCL allows")


def test_scalars_empty_unaligned_and_in_place(trio):
    trio.run(odd_memory)


def wrong_sizes(here):
    mine = np.zeros(2)
    with pytest.raises(ValueError):
        here.group.allgather([np.zeros(2)] * (here.size + 1), mine)
    with pytest.raises(ValueError):
        here.group.scatter(mine, [np.zeros(2)] if here.rank == 0 else [mine], 0)
    with pytest.raises(ValueError):
        here.group.broadcast(mine, here.size)
    with pytest.raises(ValueError):
        here.group.broadcast(mine, -1)
    with pytest.raises(ValueError, match="dtype"):
        here.group.all_gather_single(np.zeros(2 * here.size), np.zeros(2, np.float32))
    here.group.barrier().wait()


def test_wrong_sizes_are_value_errors(trio):
    trio.run(wrong_sizes)
