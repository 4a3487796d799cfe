"""Cycles of Python objects through compiled ones: Python's collector frees them."""

import gc
import time
import weakref

import numpy as np
import polyrank
import pytest
from test_own_stores import DictStore, Shared

#: How long a thread may still have what it is done with, s.
LIMIT = 20


class Node:
    """What refers to what refers to it."""

    def __call__(self, *_):
        return None


class Numbers(np.ndarray):
    """A tensor that takes attributes."""


def numbers(count=4):
    return np.ones(count).view(Numbers)


def is_freed(made):
    """Whether what `made` returns is freed when nobody has it."""
    known = weakref.ref(made())
    deadline = time.monotonic() + LIMIT
    while known() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    return known() is None


def alone(store=None, backend="tcp"):
    store = polyrank.HashStore() if store is None else store
    return polyrank.ProcessGroup(store, 0, 1, backend=backend)


def under_itself():
    store = DictStore(Shared())
    store.under = polyrank.PrefixStore("a", store)
    store.under.set("key", b"value")
    return store


def under_prefixes():
    store = DictStore(Shared())
    store.under = polyrank.PrefixStore("a", polyrank.PrefixStore("b", store))
    store.beside = polyrank.PrefixStore("c", store.under)
    store.clone_of_it = store.under.clone()
    store.below = store.under.underlying_store
    store.beside.set("key", b"value")
    return store


def class_under_itself():
    class Other(polyrank.PrefixStore):
        pass

    store = DictStore(Shared())
    store.under = Other("a", store)
    store.under.again = store.under
    return store


def group_that_was_left():
    store = DictStore(Shared())
    store.group = alone(polyrank.PrefixStore("x", store))
    store.group.barrier().wait()
    store.kept = store.group.get_group_store()
    store.group.shutdown()
    return store


def hook_of(register):
    def made():
        node = Node()
        node.group = alone()
        getattr(node.group, register)(0, lambda *_: node)
        node.group.barrier().wait()
        return node

    return made


def reduction():
    node = Node()
    node.op = polyrank.ReduceOp.custom(node)
    node.same = [node.op.op, polyrank.ReduceOp(node.op)]
    return node


def options():
    node = Node()
    node.options = polyrank.AllreduceOptions(reduce_op=polyrank.ReduceOp.custom(node))
    return node


def options_of_options():
    backend = polyrank.AllgatherOptions()
    tensor = numbers()
    tensor.options = backend
    return tensor


def work():
    tensor = numbers()
    tensor.work = alone().allreduce(tensor)
    tensor.work.wait()
    return tensor


def future():
    tensor = numbers()
    tensor.future = alone().allreduce(tensor).get_future()
    tensor.future.wait()
    return tensor


def callback():
    node = Node()
    node.future = alone().barrier().get_future().then(lambda _: node)
    assert node.future.wait() is node
    return node


def prepared():
    tensor = numbers()
    tensor.prepared = alone().prepare_allreduce(tensor)
    tensor.prepared.run()
    return tensor


def prepared_reduction():
    node = Node()
    node.op = polyrank.ReduceOp.custom(node)
    node.prepared = alone().prepare_allreduce(np.ones(3), node.op)
    return node


def message():
    tensor = numbers()
    tensor.message = polyrank.P2POp(polyrank.isend, tensor, 0, alone())
    return tensor


class Mine:
    """A backend that knows its group."""

    def __init__(self, *_):
        MINE.append(self)

    def allreduce(self, tensors, opts):
        return None

    def barrier(self, opts):
        return None


MINE = []
polyrank.register_backend("mine_in_cycles", Mine)


def backend_that_was_left():
    group = alone(backend="mine_in_cycles")
    backend = MINE.pop()
    backend.group = group
    group.barrier().wait()
    group.shutdown()
    return backend


KINDS = [
    under_itself,
    under_prefixes,
    class_under_itself,
    group_that_was_left,
    hook_of("register_pre_hook"),
    hook_of("register_post_hook"),
    hook_of("register_completion_hook"),
    hook_of("register_abort_hook"),
    reduction,
    options,
    options_of_options,
    work,
    future,
    callback,
    prepared,
    prepared_reduction,
    message,
    backend_that_was_left,
]


@pytest.mark.parametrize("made", KINDS, ids=lambda made: made.__qualname__)
def test_a_cycle_is_freed(made):
    assert is_freed(made)


def test_the_collector_sees_the_same_in_all_of_a_run():
    group, hook = alone(), Node()
    group.register_completion_hook(0, hook)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        gc.collect()
        assert hook in gc.get_referents(group)
        # It has the group from now on; that counts from the next run.
        window = group.new_window()
        assert hook in gc.get_referents(group)
        gc.collect()
        assert hook not in gc.get_referents(group)
        del window
    finally:
        if was_enabled:
            gc.enable()
    group.shutdown()
