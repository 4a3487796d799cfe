"""Hooks: what Python's functions learn of operations, and what an exception in one does to whom."""

import gc
import queue
import weakref

import numpy as np
import pytest
from over_store import LIMIT

import polyrank


def sees_the_objects_of_the_call(here):
    group = here.make_group("hooks: objects of the call")
    seen = []
    group.register_pre_hook(0, lambda args: seen.append(args))
    tensor = np.ones((2, 3), np.float32)
    gathered = np.zeros((2 * here.size, 3), np.float32)
    root = here.size - 1
    group.allreduce(tensor, polyrank.ReduceOp.MAX).wait()
    group.broadcast(tensor, root).wait()
    group.all_gather_single(gathered, tensor).wait()
    prepared = group.prepare_allreduce(tensor)
    prepared.run()
    prepared.start().wait()
    allreduce, broadcast, allgather, *twice = seen
    assert isinstance(allreduce, polyrank.PreHookArgs)
    assert (allreduce.name, allreduce.root, allreduce.op_id) == ("ALLREDUCE", -1, 0)
    assert allreduce.rank == here.rank
    assert allreduce.reduce_op == polyrank.ReduceOp.MAX
    assert allreduce.input_tensors[0] is tensor and allreduce.output_tensors[0] is tensor
    assert (broadcast.name, broadcast.root, broadcast.reduce_op) == ("BROADCAST", root, None)
    ours, others = (broadcast.input_tensors, broadcast.output_tensors)
    if here.rank != root:
        ours, others = others, ours
    assert ours[0] is tensor and others == []
    assert allgather.input_tensors[0] is tensor and allgather.output_tensors[0] is gathered
    for args in twice:
        assert args.input_tensors[0] is tensor
    assert len(twice) == 2
    assert repr(broadcast).startswith("PreHookArgs(name='BROADCAST', rank=")
    group.shutdown()


def test_hooks_see_the_objects_of_the_call(world):
    world.run(sees_the_objects_of_the_call)


def messages(here):
    group = here.make_group("hooks: messages")
    seen = []
    note = lambda args: seen.append((args.name, args.root, args.async_op))  # noqa: E731
    group.register_pre_hook(0, note)
    tensor = np.arange(4)
    with polyrank.process_group(group):
        if here.rank == 0:
            group.send([tensor], 1).wait()
        else:
            group.recv_anysource([tensor]).wait()
    polyrank.all_gather_object([None] * 2, {"rank": here.rank}, group=group)
    tensors = []
    look = lambda args: tensors.append((args.input_tensors, args.output_tensors))  # noqa: E731
    group.register_pre_hook(1, look)
    matrix = np.ones((2, 3), np.float16)
    if here.rank == 0:
        polyrank.send(matrix, group=group, group_dst=1)
        polyrank.isend(matrix, group=group, group_dst=1).wait()
    else:
        polyrank.recv(matrix, group=group, group_src=0)
        polyrank.irecv(matrix, group=group, group_src=0).wait()
    for sent, received in tensors:
        mine, other = (sent, received) if here.rank == 0 else (received, sent)
        assert mine[0] is matrix and other == []
    assert len(tensors) == 2
    expected = ("SEND", 1, True) if here.rank == 0 else ("RECVANYSOURCE", -1, True)
    assert seen[:2] == [expected, ("ALL_GATHER_OBJECT", -1, False)]
    assert [name for name, *_ in seen[2:]] == ["SEND" if here.rank == 0 else "RECV"] * 2
    group.shutdown()


def test_hooks_see_messages_and_objects(pair):
    pair.run(messages)


def handles_and_ends(here):
    group = here.make_group("hooks: handles")
    # Called on the thread that notices the end, which need not be the one that waits.
    posts, ends = [], queue.Queue()
    group.register_post_hook(3, posts.append)
    group.register_completion_hook(3, ends.put)
    tensor = np.full(5, here.rank, np.int64)
    work = group.allreduce(tensor)
    work.wait()
    (post,), end = posts, ends.get(timeout=LIMIT)
    assert (post.name, post.op_id) == ("ALLREDUCE", 0) == (end.name, end.op_id)
    assert post.work.is_success() and post.work.result()[0] is tensor
    assert post.work.timeout == work.timeout == group.timeout
    assert end.error is None and end.duration.total_seconds() >= 0
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        group.allreduce(tensor[: 1 + here.rank]).wait()
    error = ends.get(timeout=LIMIT).error
    assert type(error) is type(caught.value) and str(error) == str(caught.value)
    assert len(posts) == 2 and ends.empty()


def test_hooks_get_handles_and_are_told_of_ends(pair):
    pair.run(handles_and_ends)


class Mine(Exception):
    """An exception of the user."""


def stops(here, asynchronous):
    group = here.make_group(f"hooks: stopped {asynchronous}")
    if here.rank == 1:

        def hook(args):
            if args.op_id == 1:
                raise Mine("not this one")

        group.register_pre_hook(4, hook)
    tensor = np.ones(3)
    group.allreduce(tensor).wait()
    if here.rank == 1:
        with pytest.raises(Mine, match="not this one"):
            if asynchronous:
                group.allreduce(tensor)
            else:
                polyrank.all_reduce(tensor, group=group)
        with pytest.raises(polyrank.AbortedError):
            group.allreduce(tensor).wait()
    else:
        with pytest.raises(polyrank.AbortedError) as caught:
            group.allreduce(tensor).wait()
        assert caught.value.rank == 1
        assert "its pre-hook 4 stopped ALLREDUCE #1: Mine: not this one" in str(caught.value)
    assert (tensor == here.size).all()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_exception_in_a_hook_is_the_caller_s_own_and_told_to_all(trio, asynchronous):
    trio.run(stops, asynchronous)


async def waits(_):
    """A check that nobody would wait for."""


def refuses_coroutines(here):
    group = here.make_group("hooks: coroutines")
    group.register_pre_hook(0, waits)
    with pytest.raises(polyrank.PolyrankError, match="does not wait for a coroutine") as caught:
        group.barrier().wait()
    assert isinstance(caught.value, (polyrank.InvalidTypeError, polyrank.AbortedError))


def test_a_hook_that_has_to_be_awaited_is_refused(pair):
    pair.run(refuses_coroutines)


def callbacks_have_hooks(here):
    """A callback that runs while a hook waits is not part of the hook."""
    group, other = here.make_group("hooks: one"), here.make_group("hooks: other")
    seen = []
    other.register_pre_hook(0, lambda args: seen.append(args.name))
    work = group.barrier()
    future = work.get_future().then(lambda _: other.barrier())

    def hook(_):
        group.unregister_pre_hook(0)
        future.wait()

    group.register_pre_hook(0, hook)
    group.barrier().wait()
    future.value().wait()
    assert seen == ["BARRIER"]
    group.shutdown()
    other.shutdown()


def test_callbacks_that_run_in_a_hook_have_hooks(pair):
    pair.run(callbacks_have_hooks)


def finite(here):
    for allow, value in [(False, np.inf), (True, np.nan)]:
        group = here.make_group(f"hooks: finite {allow}")
        group.register_pre_hook(0, polyrank.nan_check(allow_infinity=allow))
        tensor = np.zeros((3, 4), np.float16)
        group.allreduce(tensor).wait()
        if allow:
            group.broadcast(np.array([np.inf]), 0).wait()
        # What others still run in the group ends well, although this ends it.
        if here.rank == 2:
            tensor[1, 2] = value
        with pytest.raises(polyrank.PolyrankError) as caught:
            group.allreduce(tensor).wait()
        shown = "NaN" if allow else "inf"
        text = f"ALLREDUCE of rank 2: element (1, 2) of input 0, of f16, is {shown}"
        assert text in str(caught.value)
        if here.rank == 2:
            assert isinstance(caught.value, polyrank.NonFiniteInputError)
            assert isinstance(caught.value, ValueError)
            assert (caught.value.element, caught.value.tensor) == ("(1, 2)", 0)
        else:
            assert not tensor.any(), "it has not spread"


def test_nan_is_found_before_it_spreads(trio):
    trio.run(finite)


def composed(here):
    """A hook of the user's may ask the ready one."""
    group = here.make_group("hooks: composed")
    check, found = polyrank.nan_check(), []

    def hook(args):
        try:
            check(args)
        except polyrank.NonFiniteInputError as error:
            found.append(error.element)

    group.register_pre_hook(0, hook)
    strided = np.zeros((4, 4))[:, ::2]
    strided[3, 1] = np.nan
    group.allreduce(strided).wait()
    assert found == ["(3, 1)"]
    # Hooks see both tensors of a sparse one.
    group.allreduce_sparse(np.arange(2), np.array([0, np.inf]))
    assert found == ["(3, 1)", "(1,)"]
    group.shutdown()


def test_the_ready_hook_can_be_called(pair):
    pair.run(composed)


def reported(here):
    """What a hook raises that is only told is reported, and changes nothing."""
    import sys

    group = here.make_group("hooks: reported")
    raised = queue.Queue()
    sys.unraisablehook = lambda args: raised.put(str(args.exc_value))

    def fail(_):
        raise Mine("for nothing")

    group.register_post_hook(0, fail)
    group.register_completion_hook(0, fail)
    tensor = np.ones(2)
    group.allreduce(tensor).wait()
    told = [raised.get(timeout=LIMIT) for _ in range(2)]
    sys.unraisablehook = sys.__unraisablehook__
    assert told == ["for nothing"] * 2 and (tensor == here.size).all()
    group.shutdown()


def test_what_later_hooks_raise_is_reported(pair):
    pair.run(reported)


def aborts(here):
    group = here.make_group("hooks: aborts")
    order = []
    group.register_abort_hook(1, lambda: order.append(1))
    group.register_abort_hook(0, lambda: order.append(0))
    group.barrier().wait()
    if here.rank == 0:
        here.store.wait(["aborts 1", "aborts 2"])
        group.abort()
        assert order == []
    else:
        work = group.barrier()
        here.store.set(f"aborts {here.rank}", "in flight")
        with pytest.raises(polyrank.AbortedError):
            work.wait()
        assert order == [0, 1], "before the operation says so"


def test_abort_hooks_run_before_the_error_is_raised(trio):
    trio.run(aborts)


def released(here):
    group = here.make_group("hooks: released")

    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    group.register_pre_hook(0, lambda _, held=held, group=group: None)
    group.barrier().wait()
    group.shutdown()
    del held, group
    gc.collect()
    assert gone() is None


def test_hooks_are_forgotten_when_the_group_is_left(pair):
    pair.run(released)


def test_what_is_not_a_hook_is_refused(pair):
    pair.run(refuses)


def refuses(here):
    for wrong in [(0, 3), ("x", print), (0,), (2**80, print)]:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            here.group.register_pre_hook(*wrong)
    here.group.unregister_pre_hook(77)
