"""Every collective and both messages as prepared operations: each rank starts, runs, or makes the
ordinary call, whichever its turn says; what comes is what NumPy says."""

import gc
import weakref

import numpy as np
import pytest

import polyrank
from oracles import SUPPORTED, reduced, same, values

COUNTS = [0, 1, 7, 4099]
KINDS = ["float32", "int16", "float64"]
ROUNDS = 4


def in_turns(here, prepared, ordinary, check):
    """Starts it, runs it, or makes the ordinary call, another way on each rank and in each round;
    `check` sets the tensors before a round, and looks at them after it."""
    for round_ in range(ROUNDS):
        look = check(round_)
        way = (here.rank + round_) % 3
        if way == 0:
            work = prepared.start()
            assert work.wait() and prepared.wait()
        elif way == 1:
            assert prepared.run() is None
        else:
            ordinary().wait()
        look()


def reductions(here, kind, count):
    group, rank, ranks = here.group, here.rank, range(here.size)
    part = lambda r, round_: values(r + round_, count, kind)
    root = here.size - 1
    tensor = np.zeros(count, kind)

    def gets(expected):
        def check(round_):
            tensor[:] = part(rank, round_)

            def look():
                same(tensor, expected([part(r, round_) for r in ranks]), (kind, count, round_))

            return look

        return check

    def at_root(parts):
        return reduced("SUM", parts) if rank == root else parts[rank]

    most = polyrank.ReduceOp.MAX
    in_turns(
        here,
        group.prepare_reduce(tensor, root),
        lambda: group.reduce(tensor, root),
        gets(at_root),
    )
    in_turns(
        here,
        group.prepare_allreduce(tensor, most),
        lambda: group.allreduce(tensor, most),
        gets(lambda parts: reduced("MAX", parts)),
    )
    in_turns(
        here,
        group.prepare_broadcast(tensor, root),
        lambda: group.broadcast(tensor, root),
        gets(lambda parts: parts[root]),
    )
    in_turns(
        here,
        group.prepare_scan(tensor),
        lambda: group.scan(tensor),
        gets(lambda parts: reduced("SUM", parts[: rank + 1])),
    )
    in_turns(
        here,
        group.prepare_exscan(tensor),
        lambda: group.exscan(tensor),
        gets(lambda parts: reduced("SUM", parts[:rank]) if rank else parts[0]),
    )


def exchanges(here, kind, count):
    group, rank, ranks, size = here.group, here.rank, range(here.size), here.size
    one, all_ = np.zeros(count, kind), np.zeros(count * size, kind)
    part = lambda r, round_: values(r + round_, count, kind)
    row = lambda r, round_: np.concatenate([part(10 * r + other, round_) for other in ranks])

    def given(tensor, value, taken, expected):
        def check(round_):
            taken[:] = 0
            tensor[:] = value(rank, round_)
            return lambda: same(taken, expected(round_), (kind, count, round_))

        return check

    whole = lambda round_: np.concatenate([part(r, round_) for r in ranks])
    in_turns(
        here,
        group.prepare_allgather(all_, one),
        lambda: group.all_gather_single(all_, one),
        given(one, part, all_, whole),
    )
    in_turns(
        here,
        group.prepare_reduce_scatter(one, all_),
        lambda: group.reduce_scatter_single(one, all_),
        given(
            all_,
            row,
            one,
            lambda round_: reduced("SUM", [part(10 * r + rank, round_) for r in ranks]),
        ),
    )
    other = np.zeros(count * size, kind)
    in_turns(
        here,
        group.prepare_alltoall(other, all_),
        lambda: group.all_to_all_single(other, all_),
        given(
            all_,
            row,
            other,
            lambda round_: np.concatenate([part(10 * r + rank, round_) for r in ranks]),
        ),
    )


def lists(here, kind, count):
    group, rank, ranks, size = here.group, here.rank, range(here.size), here.size
    root, one = size - 1, np.zeros(count, kind)
    part = lambda r, round_: values(r + round_, count, kind)
    places = [np.zeros(count, kind) for _ in ranks] if rank == root else []

    def gather(round_):
        one[:] = part(rank, round_)

        def look():
            for r, place in enumerate(places):
                same(place, part(r, round_), (kind, count, round_, r))

        return look

    in_turns(
        here,
        group.prepare_gather(places, one, root),
        lambda: group.gather(places, one, root),
        gather,
    )

    def scatter(round_):
        for r, place in enumerate(places):
            place[:] = part(r, round_)
        one[:] = 0
        return lambda: same(one, part(rank, round_), (kind, count, round_))

    in_turns(
        here,
        group.prepare_scatter(one, places, root),
        lambda: group.scatter(one, places, root),
        scatter,
    )


def every_prepared_collective(here):
    for kind in KINDS:
        for count in COUNTS:
            reductions(here, kind, count)
            exchanges(here, kind, count)
            lists(here, kind, count)
    barrier = here.group.prepare_barrier(timeout=60.0)
    in_turns(here, barrier, here.group.barrier, lambda _: lambda: None)
    assert "PreparedOperation(barrier in " in repr(barrier)


def test_every_collective_can_be_prepared(world):
    world.run(every_prepared_collective)


def parts_of_different_sizes(here):
    """Rank r sends r + other rows to rank other."""
    group, rank, ranks = here.group, here.rank, range(here.size)
    gives = [rank + other for other in ranks]
    gets = [other + rank for other in ranks]
    given, taken = np.zeros(sum(gives), np.int64), np.full(sum(gets), -1, np.int64)
    prepared = group.prepare_alltoall(taken, given, gets, gives)

    def check(round_):
        given[:] = np.repeat([100 * rank + other + round_ for other in ranks], gives)
        expected = np.repeat([100 * other + rank + round_ for other in ranks], gets)
        return lambda: same(taken, expected, round_)

    in_turns(here, prepared, lambda: group.all_to_all_single(taken, given, gets, gives), check)


def test_a_prepared_alltoall_has_sizes(world):
    world.run(parts_of_different_sizes)


def messages_around_a_ring(here):
    group, rank, size = here.group, here.rank, here.size
    for count in (0, 1, 5, 40_001):
        given, taken = np.zeros(count, np.float32), np.zeros(count, np.float32)
        sends = group.prepare_send(given, (rank + 1) % size, tag=3)
        takes = group.prepare_recv(taken, (rank - 1) % size, tag=3)
        assert f"send of {count} f32" in repr(sends) and "recv" in repr(takes)
        for round_ in range(6):
            given[:] = rank + round_
            # One rank sends as usual, one receives as usual, the others start or run.
            if round_ % 3 == 0 and rank == 0:
                sent = group.send([given], (rank + 1) % size, tag=3)
            else:
                sent = sends.start()
            if (rank + round_) % 3 == 0:
                received = takes.start()
                received.wait()
                assert received.source_rank() == (rank - 1) % size
            elif (rank + round_) % 3 == 1:
                takes.run()
            else:
                group.recv([taken], (rank - 1) % size, tag=3).wait()
            sent.wait()
            same(taken, np.full(count, (rank - 1) % size + round_, np.float32), (count, round_))


def test_messages_can_be_prepared(world):
    world.run(messages_around_a_ring)


def runs_send_and_receive(here):
    tensor = np.zeros(3)
    if here.rank == 0:
        prepared = here.group.prepare_send(tensor, 1)
        for round_ in range(20):
            tensor[:] = round_
            prepared.run()
    else:
        prepared = here.group.prepare_recv(tensor, 0)
        for round_ in range(20):
            prepared.run()
            same(tensor, np.full(3, float(round_)), round_)


def test_a_message_is_run(pair):
    pair.run(runs_send_and_receive)


def unusual_tensors(here):
    """Strided ones, an input inside of the output, several dimensions, and a list."""
    group, rank, ranks, size = here.group, here.rank, range(here.size), here.size
    strided = np.zeros((2, 6), np.int32)[:, ::2]
    scanned = group.prepare_scan(strided)
    stacked = np.zeros((size, 2, 3), np.int32)
    inside = group.prepare_allgather(stacked, stacked[rank])
    for round_ in range(3):
        strided[:] = rank + round_
        scanned.run()
        assert (strided == sum(r + round_ for r in ranks if r <= rank)).all()
        stacked[rank] = rank * 10 + round_
        inside.run()
        assert (stacked == np.arange(size).reshape(-1, 1, 1) * 10 + round_).all()


def test_tensors_of_any_shape_can_be_prepared(world):
    world.run(unusual_tensors)


def wrong_arguments(here):
    group = here.group
    one, two = np.zeros(1, np.float32), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="root"):
        group.prepare_broadcast(one, 2)
    with pytest.raises(ValueError):
        group.prepare_reduce(one, 7)
    with pytest.raises(ValueError):
        group.prepare_allgather(np.zeros(3, np.float32), one)
    with pytest.raises(ValueError):
        group.prepare_reduce_scatter(two, two)
    with pytest.raises(ValueError):
        group.prepare_alltoall(two, two, [2, 1], [1, 1])
    with pytest.raises(ValueError):
        group.prepare_gather([one], one, here.rank)
    with pytest.raises(ValueError):
        group.prepare_scatter(one, [two, two], here.rank)
    with pytest.raises(ValueError):
        group.prepare_send(one, 2)
    with pytest.raises(ValueError):
        group.prepare_recv(one, 9)
    with pytest.raises(TypeError):
        group.prepare_scan([one])
    with pytest.raises(TypeError):
        group.prepare_barrier("soon")
    with pytest.raises(polyrank.UnsupportedDTypeError):
        group.prepare_exscan(one, polyrank.ReduceOp.BAND)
    one.flags.writeable = False
    for prepare in (group.prepare_scan, lambda it: group.prepare_recv(it, 0)):
        with pytest.raises(ValueError, match="read-only"):
            prepare(one)
    # None of these was an operation.
    same(sum_of_ones(here), np.float32([2]))


def sum_of_ones(here):
    tensor = np.ones(1, np.float32)
    here.group.allreduce(tensor).wait()
    return tensor


def test_wrong_arguments_are_found_when_it_is_prepared(pair):
    pair.run(wrong_arguments)


def ends_with_the_group(here):
    group = here.make_group("ends with it")
    one, two = np.ones(1), np.ones(2)
    all_ = [
        group.prepare_broadcast(one, 0),
        group.prepare_allgather(two, one),
        group.prepare_gather([one, one.copy()] if here.rank == 0 else [], one, 0),
        group.prepare_barrier(),
        group.prepare_send(one, 1 - here.rank),
    ]
    all_[0].run()
    here.store.set(f"run {here.rank}", "")
    here.store.wait(["run 0", "run 1"])
    group.shutdown()
    for prepared in all_:
        with pytest.raises(polyrank.PolyrankError):
            prepared.run()
        with pytest.raises(polyrank.PolyrankError):
            prepared.start().wait()
    with pytest.raises(polyrank.InvalidGroupError):
        group.prepare_barrier()
    with pytest.raises(polyrank.InvalidGroupError):
        group.prepare_send(one, 0)


def test_prepared_operations_end_with_their_group(pair):
    pair.run(ends_with_the_group)


def seen_by_hooks(here):
    group = here.make_group("hooked")
    seen = []
    group.register_pre_hook(1, lambda args: seen.append((args.name, args.root, args.comm_name)))
    one, two = np.ones(1), np.zeros(2)
    gather = group.prepare_allgather(two, one)
    tell = group.prepare_broadcast(one, 1)
    message = (
        group.prepare_send(one, 1) if here.rank == 0 else group.prepare_recv(one, 0)
    )
    with polyrank.record_comm("layer"):
        gather.run()
    tell.start().wait()
    message.run()
    assert [entry[0] for entry in seen[:2]] == ["ALLGATHER", "BROADCAST"]
    assert seen[0][2] == "layer" and seen[1][1:] == (1, None)
    assert seen[2][0] == ("SEND" if here.rank == 0 else "RECV")
    group.unregister_pre_hook(1)
    gather.run()
    assert len(seen) == 3
    group.shutdown()


def test_hooks_and_names_see_the_ordinary_operation(pair):
    pair.run(seen_by_hooks)


def numbers_of_starts(here):
    group = here.make_group("counted")
    tensor = np.zeros(1)
    prepared = group.prepare_broadcast(tensor, 0, timeout=30.0)
    first = prepared.start()
    first.wait()
    between = group.allreduce(tensor)
    between.wait()
    last = prepared.start()
    last.wait()
    assert [first.sequence, between.sequence, last.sequence] == [1, 2, 3]
    assert last.timeout.total_seconds() == 30.0 and last.result()[0] is tensor
    group.shutdown()


def test_starts_are_numbered_as_calls(pair):
    pair.run(numbers_of_starts)


def keeps_its_tensors(here):
    output, given = np.zeros(here.size, np.float32), np.ones(1, np.float32)
    gone = weakref.ref(given)
    prepared = here.group.prepare_allgather(output, given)
    del given
    gc.collect()
    prepared.run()
    same(output, np.ones(here.size, np.float32))
    assert gone() is not None
    here.group.barrier().wait()
    del prepared
    gc.collect()
    assert gone() is None


def test_it_keeps_its_tensors(pair):
    pair.run(keeps_its_tensors)


def every_operator(here):
    for op, kinds in SUPPORTED.items():
        if op in ("PREMUL_SUM",):
            continue
        kind = kinds[0] if op != "AVG" else "float64"
        parts = [values(r, 3, kind, op, here.size) for r in range(here.size)]
        tensor = parts[here.rank].copy()
        prepared = here.group.prepare_allreduce(tensor, getattr(polyrank.ReduceOp, op))
        prepared.run()
        same(tensor, reduced(op, parts), op)


def test_every_operator_can_be_prepared(trio):
    trio.run(every_operator)
