"""Reduction operators that are functions of whole arrays, against `functools.reduce` in the order
of the ranks; and what an exception in one does to whom."""

import functools
import gc
import pickle
import threading
import time
import weakref

import numpy as np
import pytest

import polyrank
from oracles import DTYPES, dtype_of, same, values

COUNTS = [0, 1, 7, 3001]


def affine(a, b):
    """Neither commutes nor is it associative; in the dtype of its operands."""
    if a.dtype == np.bool_:
        return a & ~b
    return a + a - b


def folded(function, parts):
    """What a polyrank call must bring: bit for bit, as the order is the same."""
    with np.errstate(all="ignore"):
        return functools.reduce(function, parts).astype(parts[0].dtype)


def everything(here, counts):
    op = polyrank.ReduceOp.custom(affine)
    assert (op.commute, op.function, op.name) == (False, affine, "CUSTOM")
    last = here.size - 1
    for dtype in DTYPES:
        for count in counts:
            parts = [values(r, count, dtype) for r in range(here.size)]
            tensor = parts[here.rank].copy()
            here.group.allreduce(tensor, op).wait()
            same(tensor, folded(affine, parts), ("allreduce", dtype, count))

            tensor = parts[here.rank].copy()
            here.group.reduce(tensor, last, op).wait()
            expected = folded(affine, parts) if here.rank == last else parts[here.rank]
            same(tensor, expected, ("reduce", dtype, count))

            for name, ranks in (("scan", here.rank + 1), ("exscan", here.rank)):
                tensor = parts[here.rank].copy()
                getattr(here.group, name)(tensor, op).wait()
                # Rank 0 of an exclusive scan keeps what it has.
                same(tensor, folded(affine, parts[:ranks] or parts[:1]), (name, dtype, count))

            whole = [values(r, count * here.size, dtype) for r in range(here.size)]
            mine = np.zeros(count, dtype_of(dtype))
            here.group.reduce_scatter_single(mine, whole[here.rank].copy(), op).wait()
            expected = folded(affine, whole)[count * here.rank : count * (here.rank + 1)]
            same(mine, expected, ("reduce_scatter", dtype, count))


def test_every_dtype_in_the_order_of_the_ranks(world):
    world.run(everything, COUNTS if world.size <= 3 else [0, 3])


def whole_arrays(here):
    # Matrices: their product needs the shape, and does not commute.
    matrices = [np.arange(9.0).reshape(3, 3) + 5 * r + np.eye(3) for r in range(here.size)]
    op = polyrank.ReduceOp.custom(np.matmul)
    tensor = matrices[here.rank].copy()
    polyrank.all_reduce(tensor, op, group=here.group)
    same(tensor, functools.reduce(np.matmul, matrices))

    # Not contiguous: what is between the elements stays.
    around = np.full((6, 4), -1.0)
    view = around[::2, 3:0:-1]
    view[...] = matrices[here.rank]
    here.group.allreduce(view, op).wait()
    same(view.copy(), functools.reduce(np.matmul, matrices))
    assert (around[1::2] == -1).all() and (around[:, 0] == -1).all()

    # No dimension, options, a list of parts, and a result that is the operand.
    scalar = np.array(float(here.rank + 1))
    options = polyrank.AllreduceOptions(reduce_op=polyrank.ReduceOp.custom(np.hypot))
    here.group.allreduce([scalar], options).wait()
    same(scalar, np.array(functools.reduce(np.hypot, np.arange(1.0, here.size + 1))))
    parts = [np.full(r + 1, here.rank + 10 * r) for r in range(here.size)]
    mine = np.zeros(here.rank + 1, parts[0].dtype)
    first = polyrank.ReduceOp.custom(lambda a, b: a, commute=True)
    options = polyrank.ReduceScatterOptions(reduce_op=first)
    here.group.reduce_scatter([mine], [parts], options).wait()
    assert mine.tolist() == [10 * here.rank] * (here.rank + 1)
    several = [np.full(3, here.rank), np.full(2, here.rank + 5)]
    swap = polyrank.ReduceOp.custom(lambda a, b: np.add(a, b, out=b)[::-1])
    options = polyrank.AllreduceCoalescedOptions(reduce_op=swap)
    here.group.allreduce_coalesced(several, options).wait()
    assert several[0].tolist() == [sum(range(here.size))] * 3


def test_functions_see_whole_arrays(world):
    world.run(whole_arrays)


def in_flight(here):
    op = polyrank.ReduceOp.custom(affine)
    tensors = [np.full(5, here.rank + i) for i in range(12)]
    works = [here.group.allreduce(tensor, op) for tensor in tensors]
    plain = np.ones(1)
    here.group.allreduce(plain).wait()
    assert plain[0] == here.size
    # Without anybody who waits, the background thread calls the function.
    ended = threading.Event()
    works[-1].get_future().then(lambda _: ended.set())
    assert ended.wait(30)
    for i, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        parts = [np.full(5, r + i) for r in range(here.size)]
        same(tensor, folded(affine, parts))


def test_operations_in_flight_keep_their_order(world):
    world.run(in_flight)


def held_elsewhere(here):
    """While this thread waits, another one holds the GIL as often as it can."""
    stop = threading.Event()
    total = 0

    def spin():
        nonlocal total
        while not stop.is_set():
            total += sum(range(100))

    thread = threading.Thread(target=spin)
    thread.start()
    op = polyrank.ReduceOp.custom(np.maximum)
    for _ in range(20):
        tensor = np.arange(1000.0) * (here.rank + 1)
        here.group.allreduce(tensor, op).wait()
        same(tensor, np.arange(1000.0) * here.size)
    stop.set()
    thread.join()


def test_functions_run_beside_other_threads(trio):
    trio.run(held_elsewhere)


class Mine(Exception):
    pass


def raises(here, culprit, asynchronous):
    group = here.make_group(f"custom: rank {culprit} raises, {asynchronous}")
    raised = Mine("enough")

    def function(a, b):
        if here.rank == culprit:
            raise raised
        return a + b

    op = polyrank.ReduceOp.custom(function)
    work = group.allreduce(np.ones(3), op)
    if here.rank == culprit:
        with pytest.raises(Mine) as caught:
            work.wait() if asynchronous else work.get_future().wait()
        assert caught.value is raised
        where = f"{group.group_name}') on rank {here.rank}"
        assert any(where in note for note in raised.__notes__), raised.__notes__
        with pytest.raises(polyrank.AbortedError, match="enough"):
            group.allreduce(np.ones(1)).wait()
    else:
        with pytest.raises(polyrank.AbortedError, match="Mine: enough") as caught:
            work.wait()
            group.barrier().wait()
        assert caught.value.rank == culprit
        assert f"on rank {culprit}" in str(caught.value)


def raised_twice(here, kept):
    """Two operations fail with the same text: each has its own exception, which nobody keeps."""
    known = []
    for number in range(2):
        group = here.make_group(f"custom: raised twice, {number}")

        def function(a, b):
            error = Mine("the same text")
            error.operands = [a, b]
            known.append(weakref.ref(error))
            raise error

        work = group.allreduce(np.ones(3), polyrank.ReduceOp.custom(function))
        with pytest.raises((Mine, polyrank.AbortedError)) as caught:
            work.wait()
        if isinstance(caught.value, Mine):
            assert caught.value is known[-1]() and caught.value is work.exception()
            with pytest.raises(Mine) as again:
                work.wait()
            assert again.value is caught.value
            del again
        kept.append(group)
        del caught, work
    gc.collect()
    deadline = time.monotonic() + 20
    while any(error() is not None for error in known) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    return [error() is None for error in known]


def without_keeping(here):
    kept = []
    alive = raised_twice(here, kept)
    assert all(alive), alive


def test_exceptions_are_their_own_and_kept_by_nobody(pair):
    pair.run(without_keeping)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_exception_is_the_operation_s_own_and_told_to_all(trio, asynchronous):
    for culprit in range(3):
        trio.run(raises, culprit, asynchronous)


async def asynchronous(a, b):
    return a


def wrong_results(here):
    failed = polyrank.ReductionFailedError
    cases = [
        (lambda a, b: a[:1], failed, r"shape \(1,\) where an array of float64 of shape \(3,\)"),
        (lambda a, b: None, failed, "returned None where an array of float64"),
        (lambda a, b: a * 1j, failed, "of complex128 where an array of float64"),
        (lambda a, b: "abc", failed, r"of shape \(\) where an array"),
        (lambda a, b: [[1], [2, 3], 4], failed, "a list where an array"),
        (asynchronous, failed, "a coroutine where an array .* must not be async"),
        (lambda a: a, TypeError, "positional argument"),
    ]
    for number, (function, kind, text) in enumerate(cases):
        group = here.make_group(f"custom: wrong results {number}")
        with pytest.raises((kind, polyrank.AbortedError), match=text):
            group.allreduce(np.ones(3), polyrank.ReduceOp.custom(function)).wait()
    # Narrower, or a list: as NumPy converts it.
    tensor = np.ones(3)
    op = polyrank.ReduceOp.custom(lambda a, b: [float(x) for x in a] if a[0] else b.astype("f4"))
    here.group.allreduce(tensor, op).wait()
    assert tensor.tolist() == [1.0] * 3


def test_a_function_that_returns_something_else_fails(pair):
    pair.run(wrong_results)


def too_large(here):
    cases = [
        (np.int8, np.array([7, 300]), "300, which int8 does not hold"),
        (np.int32, np.array([-(2**40), 7]), f"{-(2**40)}, which int32 does not hold"),
        (np.int64, np.array([7, 2**63], np.uint64), f"{2**63}, which int64 does not hold"),
        (np.float16, np.array([7.0, 1e6]), "1000000.0, which float16 does not hold"),
        (np.float16, np.array([100_000, 7]), "100000, which float16 does not hold"),
        (np.float32, np.array([7.0, -1e300]), r"-1e\+300, which float32 does not hold"),
        (np.complex64, np.array([7.0, 1e300j]), "which complex64 does not hold"),
    ]
    for number, (dtype, returned, text) in enumerate(cases):
        group = here.make_group(f"custom: too large {number}")
        op = polyrank.ReduceOp.custom(lambda a, b, returned=returned: returned)
        failed = (polyrank.ReductionFailedError, polyrank.AbortedError)
        with pytest.raises(failed, match=f"returned {text}" if dtype != np.complex64 else text):
            group.allreduce(np.ones(2, dtype), op).wait()
    # What fits is taken, rounded if it must be; what is infinite or no number already stays that.
    for dtype, returned in (
        (np.int8, np.array([-128, 127])),
        (np.float16, np.array([0.1, np.inf])),
        (np.float32, np.array([1e-300, np.nan])),
    ):
        tensor = np.ones(2, dtype)
        op = polyrank.ReduceOp.custom(lambda a, b, returned=returned: returned)
        here.group.allreduce(tensor, op).wait()
        np.testing.assert_array_equal(tensor, returned.astype(dtype))


def test_a_result_that_the_dtype_does_not_hold_fails(pair):
    pair.run(too_large)


def against_another(here):
    group = here.make_group("custom: against SUM")
    op = polyrank.ReduceOp.custom(np.add) if here.rank == 0 else polyrank.ReduceOp.SUM
    with pytest.raises(polyrank.CollectiveMismatchError, match="CUSTOM.*SUM|SUM.*CUSTOM"):
        group.allreduce(np.ones(3), op).wait()


def test_custom_against_another_operator_is_a_mismatch(pair):
    pair.run(against_another)


def hooks_see_it(here):
    group = here.make_group("custom: hooks")
    seen = []
    group.register_pre_hook(0, lambda args: seen.append(args.reduce_op))
    op = polyrank.ReduceOp.custom(affine)
    group.allreduce(np.ones(3), op).wait()
    assert seen == [op] and seen[0].function is affine
    group.shutdown()


def test_hooks_see_the_operator(pair):
    pair.run(hooks_see_it)


def test_the_class():
    op = polyrank.ReduceOp.custom(affine)
    assert op == polyrank.ReduceOp(op) and hash(op) == hash(polyrank.ReduceOp(op))
    assert op != polyrank.ReduceOp.custom(affine) and op != polyrank.ReduceOp.CUSTOM
    assert "affine" in repr(op)
    assert polyrank.ReduceOp.SUM.function is None and polyrank.ReduceOp.CUSTOM.commute is None
    with pytest.raises(polyrank.InvalidTypeError, match="must be callable, not int"):
        polyrank.ReduceOp.custom(3)
    with pytest.raises(polyrank.InvalidTypeError, match="cannot be pickled"):
        pickle.dumps(op)


def without_a_function(here):
    with pytest.raises(polyrank.InvalidTypeError, match=r"ReduceOp\.custom"):
        here.group.allreduce(np.ones(2), polyrank.ReduceOp.CUSTOM)


def test_the_bare_operator_is_a_type_error(pair):
    pair.run(without_a_function)


def test_a_backend_without_them_says_so():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, backend="fake")
    with pytest.raises(polyrank.UnsupportedError, match="custom operator"):
        group.allreduce(np.ones(2), polyrank.ReduceOp.custom(np.add)).wait()


def let_go(here):
    class Function:
        def __call__(self, a, b):
            return a + b

    function = Function()
    known = weakref.ref(function)
    work = here.group.allreduce(np.ones(3), polyrank.ReduceOp.custom(function))
    del function
    work.wait()
    del work
    gc.collect()
    return known() is None


def prepared(here):
    tensor = np.zeros(3)
    operation = here.group.prepare_allreduce(tensor, polyrank.ReduceOp.custom(affine))
    gc.collect()
    for _ in range(3):
        tensor[...] = here.rank + 1
        operation.run()
        same(tensor, folded(affine, [np.full(3, r + 1.0) for r in range(here.size)]))


def test_prepared_operations_keep_their_functions(pair):
    pair.run(prepared)


def test_functions_are_let_go(pair):
    assert pair.run(let_go) == [True, True]
