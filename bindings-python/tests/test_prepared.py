"""Prepared operations, and small collectives that take the short way: the same results, the same
errors, whichever way each rank takes."""

import numpy as np
import pytest

import polyrank
from oracles import DTYPES, reduced, same, values


def start_again_and_again(here):
    tensor = np.zeros(3, np.float32)
    prepared = here.group.prepare_allreduce(tensor)
    assert prepared.wait() is True, "nothing was started"
    for round_ in range(50):
        tensor[:] = [here.rank + round_, 1, 2 * here.rank]
        work = prepared.start()
        assert prepared.wait() is True and work.wait() is True
        assert work.result()[0] is tensor
        ranks = range(here.size)
        same(tensor, np.float32([sum(r + round_ for r in ranks), here.size, 2 * sum(ranks)]))


def test_a_prepared_operation_is_started_often(world):
    world.run(start_again_and_again)


def run_again_and_again(here):
    """Each rank runs it, starts and waits, or calls as usual."""
    ranks = range(here.size)
    for count, kind in [(0, np.int32), (1, np.float64), (4097, np.float32), (300_001, np.int64)]:
        tensor = np.zeros(2 * count, kind)[:: 1 + count % 2]
        prepared = here.group.prepare_allreduce(tensor)
        for round_ in range(9):
            tensor[:] = here.rank + round_
            if (here.rank + round_) % 3 == 0:
                assert prepared.start().wait()
            elif (here.rank + round_) % 3 == 1:
                here.group.allreduce(tensor).wait()
            else:
                assert prepared.run() is None
            assert (tensor == sum(r + round_ for r in ranks)).all(), (count, round_)
    started = here.group.prepare_allreduce(np.ones(100_000))
    started.start()
    assert started.wait()
    started.run()
    assert started.wait()


def test_a_prepared_operation_is_run_often(world):
    world.run(run_again_and_again)


def mixed_with_ordinary_calls(here):
    large = np.ones(200_000, np.int64)
    small = np.ones(2, np.int64)
    prepared = [here.group.prepare_allreduce(large), here.group.prepare_allreduce(small)]
    for round_ in range(6):
        for tensor, operation in zip((large, small), prepared):
            tensor[:] = here.rank + 1
            if (here.rank + round_) % 2:
                operation.start().wait()
            else:
                here.group.allreduce(tensor).wait()
            assert (tensor == here.size * (here.size + 1) // 2).all()


def test_others_may_take_part_by_ordinary_calls(world):
    world.run(mixed_with_ordinary_calls)


def options_and_strides(here):
    strided = np.arange(10, dtype=np.float64)[::2] * (here.rank + 1)
    prepared = here.group.prepare_allreduce(strided, polyrank.ReduceOp.MAX, timeout=20.0)
    expected = np.arange(10, dtype=np.float64)[::2] * here.size
    assert prepared.start().wait()
    same(strided, expected)
    mean = np.float32([here.rank, 1])
    prepared = here.group.prepare_allreduce(mean, polyrank.ReduceOp.AVG)
    prepared.start()
    prepared.wait()
    same(mean, np.float32([(here.size - 1) / 2, 1]))
    text = repr(prepared)
    assert "allreduce" in text and "2 f32" in text


def test_options_are_checked_once(world):
    world.run(options_and_strides)


def wrong_arguments(here):
    with pytest.raises(polyrank.UnsupportedDTypeError):
        here.group.prepare_allreduce(np.zeros(1, np.float32), polyrank.ReduceOp.BAND)
    with pytest.raises(TypeError):
        here.group.prepare_allreduce("tensor")
    read_only = np.zeros(1)
    read_only.flags.writeable = False
    with pytest.raises(ValueError):
        here.group.prepare_allreduce(read_only)


def test_what_is_wrong_raises_when_it_is_prepared(pair):
    pair.run(wrong_arguments)


def started_twice(here):
    """On a rank that is ahead, the first start is still running; nothing is issued then."""
    group = here.make_group("started twice")
    for count in (1, 100_000):
        tensor = np.ones(count, np.float32)
        prepared = group.prepare_allreduce(tensor)
        for ahead in range(here.size):
            tensor[:] = 1
            refused = f"{count} {ahead}"
            if here.rank == ahead:
                first = prepared.start()
                for again in (prepared.start, prepared.run):
                    with pytest.raises(polyrank.InvalidArgumentError, match="is still running"):
                        again()
                here.store.set(refused, "")
            else:
                here.store.wait([refused])
                first = prepared.start()
            first.wait()
            second = prepared.start()
            assert prepared.wait() and second.sequence == first.sequence + 1
            same(tensor, np.full(count, here.size**2, np.float32))
    group.shutdown()


@pytest.mark.parametrize("size", [2, 3])
def test_a_start_of_a_collective_that_is_running_is_refused(pools, size):
    pools(size).run(started_twice)


def messages_started_twice(here, count):
    """Nothing is sent before both receives have been started, on any rank."""
    others = [rank for rank in range(here.size) if rank != here.rank]
    came = {rank: np.zeros(count) for rank in others}
    receives = [here.group.prepare_recv(came[rank], rank, 7) for rank in others]
    works = [receive.start() for _ in range(2) for receive in receives]
    assert not any(work.is_completed() for work in works)
    here.store.set(f"{count} receives of {here.rank}", "")
    here.store.wait([f"{count} receives of {rank}" for rank in range(here.size)])
    mine = np.zeros(count)
    sends = [here.group.prepare_send(mine, rank, 7) for rank in others]
    for round_ in range(2):
        mine[:] = 10 * here.rank + round_
        begun = [send.start() for send in sends]
        assert all(work.wait() for work in begun)
    assert all(work.wait() for work in works) and all(it.wait() for it in receives)
    for rank, tensor in came.items():
        same(tensor, np.full(count, 10.0 * rank + 1))
    begun = [send.start() for _ in range(3) for send in sends]
    for receive in receives:
        for _ in range(3):
            receive.run()
    assert all(work.wait() for work in begun)


@pytest.mark.parametrize("count", [1, 5000, 500_000])
def test_a_message_is_started_behind_another_at_once(world, count):
    world.run(messages_started_twice, count)


def fails_again_and_again(here, count):
    group = here.make_group(f"fails {count}")
    tensor = np.ones(count + here.rank, np.float32)
    prepared = group.prepare_allreduce(tensor)
    with pytest.raises(polyrank.CollectiveMismatchError):
        prepared.start()
        prepared.wait()
    for _ in range(3):
        with pytest.raises(polyrank.PolyrankError):
            prepared.start()
            prepared.wait()
    for again in (prepared.run, prepared.wait):
        with pytest.raises(polyrank.PolyrankError):
            again()


@pytest.mark.parametrize("count", [1, 1500, 100_000])
def test_what_failed_is_raised_whichever_rank_waits(pair, count):
    pair.run(fails_again_and_again, count)


def after_the_end(here):
    group = here.make_group("ends")
    prepared = group.prepare_allreduce(np.ones(1, np.float32))
    prepared.start().wait()
    # An abort fails what is not complete on every rank.
    here.store.set(f"complete on {here.rank}", "")
    here.store.wait([f"complete on {rank}" for rank in range(here.size)])
    group.abort()
    for _ in range(2):
        with pytest.raises(polyrank.PolyrankError):
            prepared.start()
            prepared.wait()
        with pytest.raises(polyrank.PolyrankError):
            prepared.run()


def alone(here):
    group = here.make_group("alone")
    prepared = group.prepare_allreduce(np.ones(1), timeout=0.2)
    if here.rank == 0:
        with pytest.raises(polyrank.CollectiveTimeoutError, match="allreduce"):
            prepared.run()
    here.store.set(f"over {here.rank}", "")
    here.store.wait([f"over {rank}" for rank in range(here.size)])


def test_a_run_has_the_limit_of_the_operation(pair):
    pair.run(alone)


def test_no_start_of_a_group_that_ended_succeeds(pair):
    pair.run(after_the_end)


def every_small_collective(here):
    ranks = range(here.size)
    for dtype in DTYPES:
        parts = [values(r, 2 * here.size, dtype) for r in ranks]
        own = parts[here.rank]
        for op in ("SUM", "MAX"):
            try:
                expected = reduced(op, parts)
                tensor = own.copy()
                here.group.allreduce(tensor, getattr(polyrank.ReduceOp, op)).wait()
            except polyrank.UnsupportedDTypeError:
                continue
            same(tensor, expected, (dtype, op))
            part = np.zeros(2, own.dtype)
            here.group.reduce_scatter_single(part, own, getattr(polyrank.ReduceOp, op)).wait()
            same(part, expected[2 * here.rank : 2 * here.rank + 2], (dtype, op))
        flat = np.zeros(2 * here.size * here.size, own.dtype)
        here.group.all_gather_single(flat, own).wait()
        same(flat, np.concatenate(parts), dtype)
        for root in ranks:
            tensor = own.copy()
            here.group.broadcast(tensor, root).wait()
            same(tensor, parts[root], (dtype, root))
        here.group.barrier().wait()


def test_small_collectives_of_every_dtype(world):
    world.run(every_small_collective)


def sizes_around_the_limit(here):
    for count in (0, 1, 1023, 1024, 1025, 4096, 4097):
        tensor = values(here.rank, count, "float32")
        here.group.allreduce(tensor).wait()
        parts = [values(r, count, "float32") for r in range(here.size)]
        same(tensor, reduced("SUM", parts), count)


def test_sizes_around_the_limit_of_the_short_way(world):
    world.run(sizes_around_the_limit)


def input_inside_of_the_output(here):
    flat = np.zeros(2 * here.size, np.float32)
    own = flat[2 * here.rank : 2 * here.rank + 2]
    own[:] = here.rank + 1
    here.group.all_gather_single(flat, own).wait()
    same(flat, np.repeat(np.arange(1, here.size + 1, dtype=np.float32), 2))


def test_an_input_that_is_part_of_the_output(world):
    world.run(input_inside_of_the_output)


def many_in_flight(here):
    tensors = [np.full(4, here.rank + n, np.int32) for n in range(100)]
    works = [here.group.allreduce(tensor) for tensor in tensors]
    for n, (tensor, work) in enumerate(zip(tensors, works)):
        assert work.wait()
        assert (tensor == sum(r + n for r in range(here.size))).all()


def test_many_small_operations_in_flight(world):
    world.run(many_in_flight)


def run_ahead(here):
    # A root waits for nobody, so it is stopped by room alone.
    for n in range(200):
        tensor = np.int64([n if here.rank == 0 else -1])
        here.group.broadcast(tensor, 0).wait()
        assert tensor[0] == n


def test_a_root_that_runs_ahead(world):
    world.run(run_ahead)
