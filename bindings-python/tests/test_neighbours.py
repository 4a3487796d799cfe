"""Neighbour collectives on grids and graphs, against grids of NumPy and matching edge by edge."""

import asyncio
import contextlib
import os

import numpy as np
import pytest

import polyrank
from oracles import DTYPES, same, values

GRIDS = {
    1: [([1], [True]), ([1, 1], [False, True]), ([], [])],
    2: [([2], [True]), ([2], [False]), ([1, 2], [True, True])],
    3: [([3], [True]), ([3, 1], [False, True])],
    5: [([5], [False]), ([5], [True])],
    8: [([2, 4], [False, True]), ([2, 2, 2], [True, True, False])],
}


def stepped(dims, periods, rank, dimension, step):
    """The rank beside `rank`, in an array of the ranks."""
    ranks = np.arange(int(np.prod(dims))).reshape(dims)
    index = [int(at[0]) for at in np.where(ranks == rank)]
    index[dimension] += step
    if periods[dimension]:
        index[dimension] %= dims[dimension]
    return int(ranks[tuple(index)]) if 0 <= index[dimension] < dims[dimension] else None


def neighbours(dims, periods, rank):
    both = [(dimension, step) for dimension in range(len(dims)) for step in (-1, 1)]
    return [stepped(dims, periods, rank, dimension, step) for dimension, step in both]


def block(rank, slot, count, dtype="float32"):
    """What a rank gives at a slot."""
    return values(rank * 7 + slot * 3, count, dtype)


def grids(here):
    for dims, periods in GRIDS[here.size]:
        grid = here.group.create_cart(dims, periods)
        assert (grid.dims, grid.periods) == (tuple(dims), tuple(periods))
        expected = neighbours(dims, periods, here.rank)
        assert grid.sources == grid.destinations == tuple(expected)
        for dimension in range(len(dims)):
            for by in (-2, -1, 0, 1, 3):
                beside = [stepped(dims, periods, here.rank, dimension, s) for s in (-by, by)]
                assert grid.shift(dimension, by) == beside
        for rank in range(here.size):
            index = grid.coordinates(rank)
            assert index == [int(at) for at in np.unravel_index(rank, dims or (1,))][: len(dims)]
            assert grid.rank_at(index) == rank
        for count in (0, 1, 7, 5001):
            exchange_in_grid(here, grid, expected, count)


def exchange_in_grid(here, grid, sources, count):
    slots = range(len(sources))
    # What a neighbour gives in one direction comes from the opposite one.
    came = [None if s is None else block(s, slot ^ 1, count) for slot, s in enumerate(sources)]
    untouched = np.full(count, -9, np.float32)
    expected = [untouched if it is None else it for it in came]
    given = [block(here.rank, slot, count) for slot in slots]
    outputs = [untouched.copy() for _ in slots]
    work = grid.neighbor_alltoall(outputs, given)
    assert isinstance(work, polyrank.Work)
    work.wait()
    for slot in slots:
        same(outputs[slot], expected[slot], (grid, slot, count))
        same(given[slot], block(here.rank, slot, count))
    if slots:
        flat = np.full((len(slots), count), -9, np.float32)
        grid.neighbor_alltoall_single(flat, np.stack(given)).wait()
        same(flat, np.stack(expected), (grid, count))
    own = block(here.rank, 0, count)
    gathered = [
        untouched if source is None else block(source, 0, count) for source in sources
    ]
    outputs = [untouched.copy() for _ in slots]
    grid.neighbor_allgather(outputs, own).wait()
    for slot in slots:
        same(outputs[slot], gathered[slot], (grid, slot, count))
    flat = np.full(len(slots) * count, -9, np.float32)
    grid.neighbor_allgather_single(flat, own).wait()
    same(flat, np.concatenate(gathered) if gathered else flat, (grid, count))


def test_grids(world):
    world.run(grids)


def graphs_of(size):
    """Destinations of each rank: a ring with each edge twice, all to all and oneself, a star."""
    yield [[(r + 1) % size, (r + 1) % size] for r in range(size)]
    yield [[(r + n) % size for n in range(size)] for r in range(size)]
    yield [[0] if r else [0, size - 1] for r in range(size)]


def sources_of(destinations, rank):
    """In an order of the rank's own."""
    named = [r for r, ranks in enumerate(destinations) for to in ranks if to == rank]
    return named[::-1] if rank % 2 else named


def uneven(source, slot):
    return (source * 3 + slot * 2) % 5


def graphs(here):
    for destinations in graphs_of(here.size):
        sources = sources_of(destinations, here.rank)
        own = destinations[here.rank]
        graph = here.group.create_dist_graph_adjacent(sources, own)
        assert (graph.sources, graph.destinations) == (tuple(sources), tuple(own))
        assert graph.dims is None and graph.periods is None
        # The n-th edge from one rank to another is the n-th here, too.
        slots = []
        for position, source in enumerate(sources):
            before = sources[:position].count(source)
            all_slots = [s for s, to in enumerate(destinations[source]) if to == here.rank]
            slots.append(all_slots[before])
        for dtype in ("int64", "bool", "complex64", "bfloat16"):
            given = [block(here.rank, s, uneven(here.rank, s), dtype) for s in range(len(own))]
            pairs = list(zip(sources, slots))
            expected = [block(r, s, uneven(r, s), dtype) for r, s in pairs]
            outputs = [np.zeros_like(it) for it in expected]
            graph.neighbor_alltoall(outputs, given).wait()
            for output, wanted in zip(outputs, expected):
                same(output, wanted, (destinations, dtype))
            outputs = [np.zeros_like(block(r, 0, r + 1, dtype)) for r in sources]
            graph.neighbor_allgather(outputs, block(here.rank, 0, here.rank + 1, dtype)).wait()
            for output, source in zip(outputs, sources):
                same(output, block(source, 0, source + 1, dtype), (destinations, dtype))


def test_graphs(world):
    world.run(graphs)


def one_way(here):
    # Rank 0 gives to rank 2, and rank 1 has nobody.
    sources, destinations = {0: ([], [2]), 1: ([], []), 2: ([0], [])}[here.rank]
    graph = here.group.create_dist_graph_adjacent(sources, destinations)
    came = [np.zeros(3)] if here.rank == 2 else []
    given = [np.array([1.5, 2.5, 3.5])] if here.rank == 0 else []
    graph.neighbor_alltoall(came, given).wait()
    strided = np.zeros((3, 2))
    outputs = [strided[:, 1]] if here.rank == 2 else []
    graph.neighbor_alltoall(outputs, [np.stack(given * 2, 1)[:, 0]] if given else []).wait()
    single = np.zeros(1, np.int16)
    graph.neighbor_allgather_single(single, np.full(1, here.rank + 5, np.int16)).wait()
    if here.rank == 2:
        same(came[0], np.array([1.5, 2.5, 3.5]))
        same(strided, np.array([[0, 1.5], [0, 2.5], [0, 3.5]]))
    assert single[0] == (5 if here.rank == 2 else 0)


def test_a_rank_without_neighbours(trio):
    trio.run(one_way)


def mismatch(call):
    """The texts of both sides of the mismatch that a rank learns of, by this call or the next."""
    with pytest.raises(polyrank.CollectiveMismatchError) as raised:
        call().wait()
        raise AssertionError("no rank disagrees")
    error = raised.value
    sides = {error.rank: error.ours, error.other_rank: error.theirs}
    return error.collective, [sides[rank] for rank in sorted(sides)]


@contextlib.contextmanager
def transport(name):
    """Groups that are made in here have these connections; none: as they find best."""
    if name is not None:
        os.environ["POLYRANK_TRANSPORT"] = name
    try:
        yield
    finally:
        os.environ.pop("POLYRANK_TRANSPORT", None)


def types_where_a_rank_is_alone(here):
    adjacent = {0: ([], [1]), 1: ([0], [])}.get(here.rank, ([], []))
    for over in (None, "tcp"):
        with transport(over):
            legal = here.make_group(f"types over {over}")
            groups = [here.make_group(f"types {n} over {over}", timeout=20) for n in range(4)]
        graph = legal.create_dist_graph_adjacent(*adjacent)
        for dtype in DTYPES:
            for count in (0, 1, 50_001):
                given = [block(0, 1, count, dtype)] if here.rank == 0 else []
                came = [np.zeros_like(block(0, 1, count, dtype))] if here.rank == 1 else []
                graph.neighbor_alltoall(came, given).wait()
                for output in came:
                    same(output, block(0, 1, count, dtype), (dtype, count, over))
        counts = (1, 2, 1000, 50_001)
        for group, count in zip(groups, counts):
            graph = group.create_dist_graph_adjacent(*adjacent)
            outputs = [np.zeros(count, "i4")] if here.rank == 1 else []
            inputs = [np.ones(count, "f4")] if here.rank == 0 else []

            def call(group=group, graph=graph, outputs=outputs, inputs=inputs):
                graph.neighbor_alltoall(outputs, inputs).wait()
                return group.barrier()

            collective, [first, second] = mismatch(call)
            assert collective == "neighbor_alltoall"
            assert first.startswith("neighbor_alltoall of f32 on the graph that operation 2 made")
            assert second.startswith("neighbor_alltoall of i32 on the graph that operation 2 made")


def test_types_are_compared_where_a_rank_has_no_neighbours(trio):
    trio.run(types_where_a_rank_is_alone)


def other_topologies_and_methods(here):
    two = [np.zeros(3), np.zeros(3)]
    ones = [np.ones(3), np.ones(3)]
    for over in (None, "tcp"):
        with transport(over):
            group = here.make_group(f"other topologies over {over}", timeout=20)
            other = here.make_group(f"other methods over {over}", timeout=20)
        grid = group.create_cart([2], [True])
        graph = group.create_dist_graph_adjacent([1 - here.rank] * 2, [1 - here.rank] * 2)
        called = grid if here.rank == 0 else graph
        _, [first, second] = mismatch(lambda called=called: called.neighbor_alltoall(two, ones))
        assert "on the grid that operation 2 made" in first
        assert "on the graph that operation 4 made" in second
        ring = other.create_cart([2], [True])

        def call(ring=ring):
            if here.rank == 0:
                return ring.neighbor_allgather(two, ones[0])
            return ring.neighbor_alltoall(two, ones)

        collective, [first, second] = mismatch(call)
        assert collective in ("neighbor_allgather", "neighbor_alltoall")
        assert first.startswith("neighbor_allgather of f64 on the grid")
        assert second.startswith("neighbor_alltoall of f64 on the grid")


def test_other_topologies_and_methods_are_a_mismatch(pair):
    pair.run(other_topologies_and_methods)


def names_in_errors(here):
    group = here.make_group("names in errors", timeout=20)
    ring = group.create_cart([2], [True])
    group.register_pre_hook(1, polyrank.nan_check())
    tensor = np.array([1.0, np.nan])
    with pytest.raises(polyrank.NonFiniteInputError, match="^NEIGHBOR_ALLTOALL_SINGLE of rank"):
        ring.neighbor_alltoall_single(np.zeros(2), tensor)
    group = here.make_group("names of what is late", timeout=20)
    ring = group.create_cart([2], [True])
    if here.rank == 0:
        with pytest.raises(polyrank.CollectiveTimeoutError, match="neighbor_allgather_single"):
            ring.neighbor_allgather_single(np.zeros(2), np.ones(1), timeout=0.2).wait()
        here.store.set("rank 0 has waited in vain", b"")
    else:
        here.store.wait(["rank 0 has waited in vain"])
        with pytest.raises(polyrank.CollectiveTimeoutError, match="neighbor_allgather_single"):
            # It may be that all is there for the first call; the group is broken all the same.
            ring.neighbor_allgather_single(np.zeros(2), np.ones(1)).wait()
            group.barrier().wait()


def test_errors_have_the_name_of_the_method(pair):
    pair.run(names_in_errors)


def arrays_as_lists(here):
    ring = here.group.create_cart(np.array([2, 1]), np.array([True, False]))
    assert (ring.dims, ring.periods) == ((2, 1), (True, False))
    every = np.array([[True, False], [False, True]])
    assert here.group.create_cart([2, 1], every[:, 1]).periods == (False, True)
    assert here.group.create_cart([2], np.array([])).periods == (False,)
    graph = here.group.create_dist_graph_adjacent(np.array([]), np.array([], np.float32))
    assert (graph.sources, graph.destinations) == ((), ())
    for call, why in (
        (lambda: here.group.create_cart([2], np.array([1])), "not Tensor"),
        (lambda: here.group.create_cart([2], np.array([[True]])), "not Tensor"),
        (lambda: here.group.create_cart(np.array([2.0])), "not Tensor"),
    ):
        with pytest.raises(polyrank.InvalidTypeError, match=why):
            call()


def test_arrays_stand_for_lists(pair):
    pair.run(arrays_as_lists)


def elements_that_are_refused(here):
    group = here.group
    grid = group.create_cart([2])
    natural = "a list of integers from 0 to 4294967295, but element {} is {}$"
    whole = "a list of integers from -2147483648 to 2147483647, but element {} is {}$"
    for call, why in (
        (lambda: group.create_cart([-3]), natural.format(0, -3)),
        (lambda: group.create_cart(np.array([1, 2**32])), natural.format(1, 2**32)),
        (lambda: group.create_dist_graph_adjacent([0, 1, -1], []), natural.format(2, -1)),
        (lambda: grid.rank_at([2**31]), whole.format(0, 2**31)),
        (lambda: polyrank.compute_dims(4, [0, -2]), natural.format(1, -2)),
        (lambda: group.ppermute(np.zeros(1), np.zeros(1), [(0, -1)]), natural.format(1, -1)),
    ):
        with pytest.raises(polyrank.InvalidArgumentError, match=why):
            call()


def test_an_element_that_is_refused_is_named(pair):
    pair.run(elements_that_are_refused)


def views_in_place_and_hooks(here):
    ring = here.group.create_cart([3], [True])
    before, after = (here.rank - 1) % 3, (here.rank + 1) % 3
    # A halo around what is a rank's own, in one array.
    memory = np.full((4, 5), here.rank, np.int32)
    ring.neighbor_alltoall([memory[:, 0], memory[:, 4]], [memory[:, 1], memory[:, 3]]).wait()
    same(memory, np.array([[before, *[here.rank] * 3, after]] * 4, np.int32))
    tensor = np.array([here.rank, -here.rank], np.float64)
    ring.neighbor_alltoall_single(tensor, tensor).wait()
    same(tensor, np.array([-before, after], np.float64))
    seen = []
    here.group.register_pre_hook(1, lambda args: seen.append((args.name, len(args.input_tensors))))
    with polyrank.record_comm("halo"):
        work = ring.neighbor_alltoall([np.zeros(1), np.zeros(1)], [np.ones(1), np.ones(1)])
    work.wait()
    here.group.unregister_pre_hook(1)
    assert seen == [("NEIGHBOR_ALLTOALL", 2)]
    assert len(work.result()) == 2
    here.group.register_pre_hook(2, polyrank.nan_check())
    here.group.unregister_pre_hook(2)
    assert repr(ring).startswith(f"Topology(pool, rank {here.rank} of 3, a grid of [3]")
    with pytest.raises(TypeError):
        polyrank.Topology()
    asyncio.run(awaited(ring))


async def awaited(ring):
    outputs = np.zeros(2)
    await ring.neighbor_allgather_single(outputs, np.ones(1), timeout=20)
    same(outputs, np.ones(2))


def test_views_in_place_and_hooks(trio):
    trio.run(views_in_place_and_hooks)


def what_is_refused(here):
    grid = here.group.create_cart([2])
    assert grid.periods == (False,)
    two, one = [np.zeros(2), np.zeros(2)], np.zeros(2)
    for call, why in (
        (lambda: here.group.create_cart([3]), "has 3 places, but the group has 2 ranks"),
        (lambda: here.group.create_cart([2], [True, False]), "one value for each of 1 dim"),
        (
            lambda: here.group.create_dist_graph_adjacent([2], []),
            "source rank must be from 0 to 1, got 2",
        ),
        (lambda: grid.neighbor_alltoall([one], two), "expected 2 output tensors.*sources, got 1"),
        (lambda: grid.neighbor_alltoall(two, [one]), "expected 2 input tensors.*destinations"),
        (lambda: grid.neighbor_allgather_single(np.zeros(3), one), "3 rows, which 2 sources"),
        (lambda: grid.neighbor_allgather(two, np.zeros(2, "int8")), "same dtype"),
        (lambda: grid.coordinates(2), "rank must be from 0 to 1, got 2"),
        (lambda: grid.rank_at([2]), r"\[2\] is not in a grid of \[2\]"),
        (lambda: grid.rank_at([]), "is not in a grid"),
        (lambda: grid.shift(1), "dimension must be from 0 to 0, got 1"),
        (lambda: polyrank.compute_dims(6, [4, 0]), r"cannot have 6 places"),
    ):
        with pytest.raises(polyrank.InvalidArgumentError, match=why):
            call()
    graph = here.group.create_dist_graph_adjacent([], [])
    with pytest.raises(polyrank.InvalidArgumentError, match="a graph has no coordinates"):
        graph.coordinates(0)
    overlapping = np.zeros(3)
    ring = here.group.create_cart([2], [True])
    with pytest.raises(polyrank.InvalidArgumentError, match="share memory"):
        ring.neighbor_alltoall([overlapping[:2], overlapping[1:]], two)


def test_what_is_refused(pair):
    pair.run(what_is_refused)


def disagreements(here):
    grid = ([2, 1], [True, False]) if here.rank == 0 else ([1, 2], [True, False])
    with pytest.raises(polyrank.TopologyMismatchError) as raised:
        here.group.create_cart(*grid)
    error = raised.value
    assert (error.rank, error.other_rank) == (0, 1)
    assert error.ours == "a grid of [2, 1] with periods [true, false]"
    assert error.theirs == "a grid of [1, 2] with periods [true, false]"
    with pytest.raises(polyrank.TopologyMismatchError, match="rank 1 gave a graph"):
        if here.rank == 0:
            here.group.create_cart([2])
        else:
            here.group.create_dist_graph_adjacent([], [])
    # Rank 0 names an edge twice that rank 1 names once.
    adjacent = ([], [1, 1]) if here.rank == 0 else ([0], [])
    with pytest.raises(polyrank.TopologyMismatchError) as raised:
        here.group.create_dist_graph_adjacent(*adjacent)
    text = "rank 0 gave 2 edges to rank 1, but rank 1 gave 1 edge from rank 0"
    assert text in str(raised.value)
    # The group goes on. Where sizes differ in an operation, it does not.
    here.group.barrier().wait()
    group = here.make_group("sizes that differ", timeout=20)
    ring = group.create_cart([2], [True])
    with pytest.raises(polyrank.CollectiveMismatchError, match="neighbor|alltoall"):
        count = 2 + here.rank
        ring.neighbor_alltoall([np.zeros(2)] * 1 + [np.zeros(2)], [np.ones(count)] * 2).wait()
        group.barrier().wait()


def test_disagreements(pair):
    pair.run(disagreements)


@pytest.mark.parametrize(
    ("size", "dims", "expected"),
    [(12, 2, [4, 3]), (8, 3, [2, 2, 2]), (7, 2, [7, 1]), (12, [0, 3, 0], [2, 3, 2]), (1, 0, [])],
)
def test_compute_dims(size, dims, expected):
    assert polyrank.compute_dims(size, dims) == expected
