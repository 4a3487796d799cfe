"""At the debug level DETAIL, ranks that disagree say where each has called."""

import os
import re
import signal

import numpy as np
import pytest

import polyrank
from ranks import Pool


def of_first(group, kind):
    tensor = np.ones(4, np.float32)
    if kind == "collective":
        return group.allreduce(tensor)
    if kind == "root":
        return group.broadcast(tensor, 0)
    return group.allreduce(tensor)


def of_last(group, kind):
    if kind == "collective":
        return group.barrier()
    if kind == "root":
        return group.broadcast(np.ones(4, np.float32), 1)
    shape, dtype = ((5,), np.float32) if kind == "size" else ((4,), np.int32)
    return group.allreduce(np.ones(shape, dtype))


def site_in(text):
    """Where a side of an error has called: file, line and function."""
    found = re.search(r", called at (.*):(\d+) in (\w+)$", text)
    return None if found is None else (found[1], int(found[2]), found[3])


def disagree(here, name, level, kind):
    polyrank.set_debug_level(level)
    group = here.make_group(f"sites {level} {name}", timeout=20)
    polyrank.set_debug_level("OFF")
    group.barrier().wait()
    call = of_last if here.rank == here.size - 1 else of_first
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        call(group, kind).wait()
        # A rank that needs nothing of the odd one may be done; its next call raises.
        for _ in range(100):
            group.barrier().wait()
    # What follows says the same, and waits for nobody.
    with pytest.raises(polyrank.CollectiveMismatchError) as later:
        group.barrier().wait()
    group.shutdown()
    error = caught.value
    assert (later.value.ours, later.value.theirs) == (error.ours, error.theirs)
    return (error.rank, error.ours), (error.other_rank, error.theirs), str(error)


KINDS = ["collective", "root", "size", "dtype"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
def test_both_sides_say_where_they_called(pools, kind, size):
    for (*sides, message) in pools(size).run(disagree, kind, "DETAIL", kind):
        assert {rank == size - 1 for rank, _ in sides} == {True, False}
        for rank, text in sides:
            path, line, function = site_in(text)
            expected = of_last if rank == size - 1 else of_first
            assert os.path.basename(path) == os.path.basename(__file__)
            assert function == expected.__name__
            first = expected.__code__.co_firstlineno
            lines = {line for *_, line in expected.__code__.co_lines() if line is not None}
            assert first < line <= max(lines)
            assert text in message


@pytest.mark.parametrize("level", ["OFF", "INFO"])
def test_below_detail_nobody_says_it(pair, level):
    for (*sides, message) in pair.run(disagree, "collective", level, "collective"):
        assert [site_in(text) for _, text in sides] == [None, None]
        assert "called at" not in message


def unasked(here):
    polyrank.set_debug_level("DETAIL")
    group = here.make_group("sites at the end", timeout=20)
    polyrank.set_debug_level("OFF")
    call = of_last if here.rank == here.size - 1 else of_first
    work = call(group, "size")
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        group.shutdown()
    del work
    return site_in(caught.value.ours)[2], site_in(caught.value.theirs)[2]


@pytest.mark.parametrize("size", [2, 3])
def test_leaving_a_group_says_it_too(pools, size):
    for functions in pools(size).run(unasked):
        assert set(functions) == {"of_first", "of_last"}


def computes(here):
    """The first rank does not learn of the disagreement while the last one asks."""
    polyrank.set_debug_level("DETAIL")
    group = here.make_group("sites of who computes", timeout=20)
    polyrank.set_debug_level("OFF")
    if here.rank == 0:
        of_first(group, "root").wait()
        here.store.wait(["told"])
        with pytest.raises(polyrank.CollectiveMismatchError):
            group.barrier().wait()
        group.shutdown()
        return None
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        group.allreduce(np.ones(4, np.float32)).wait()
    here.store.set("told", b"")
    group.shutdown()
    return site_in(caught.value.ours)[2], site_in(caught.value.theirs)[2]


def test_a_rank_that_has_not_learned_of_it_is_asked(pair):
    _, functions = pair.run(computes)
    assert set(functions) == {"of_first", "computes"}


def asks_the_silent(here):
    polyrank.set_debug_level("DETAIL")
    group = here.make_group("sites of the silent", timeout=20)
    polyrank.set_debug_level("OFF")
    if here.rank == 0:
        of_first(group, "root").wait()
        here.store.set("called", b"")
        # It is stopped here, and never goes on.
        return here.store.wait(["never"])
    here.store.wait(["stopped"])
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        group.allreduce(np.ones(4, np.float32)).wait()
    error = caught.value
    sides = {error.rank: error.ours, error.other_rank: error.theirs}
    return site_in(sides[1])[2], site_in(sides[0])


def test_a_rank_that_does_not_answer_is_not_waited_for():
    """A stopped one, not a dead one: that its connection has ended may be the error instead."""
    pool = Pool(2)
    try:
        for connection in pool.connections:
            connection.send((asks_the_silent, ()))
        pool.store.wait(["called"])
        os.kill(pool.processes[0].pid, signal.SIGSTOP)
        pool.store.set("stopped", b"")
        [told] = pool.collect([1])
    finally:
        pool.close(kill=True)
    assert told == ("asks_the_silent", None)
