"""Backends that are written in Python, and what goes wrong with them: what they raise and return in
uncommon ways, callbacks that wait, forked children, ranks that have different ones."""

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import polyrank as dist
import pytest
from over_store import LIMIT, OverStore, alone, over


class Gated(OverStore):
    """Its barriers wait, on the backend's thread, until the gate is open."""

    gate = threading.Event()

    def barrier(self, opts):
        assert self.gate.wait(LIMIT)


class Answering:
    """Its methods return what they are told to."""

    def __init__(self, *_):
        pass

    def allreduce(self, tensors, opts):
        return self.answer()

    def recv_anysource(self, tensors, tag):
        return self.allreduce(tensors, None)


class UnclearError(Exception):
    def __str__(self):
        raise ValueError("no text")


class NumberedError(Exception):
    def __init__(self, number):
        super().__init__("the same text")
        self.number = number


class Faulty:
    """Raises in uncommon ways."""

    def __init__(self, *_):
        self.raised = 0

    def allreduce(self, tensors, opts):
        raise UnclearError

    def broadcast(self, tensors, opts):
        class Handle:
            async def wait(handle):
                await asyncio.sleep(0)
                tensors[0][:] = 5

        return Handle()

    def reduce(self, tensors, opts):
        self.kernel()

    def kernel(self):
        raise NotImplementedError("no kernel for this")

    async def scatter(self, output_tensors, input_tensors, opts):
        await asyncio.sleep(0)
        raise NotImplementedError

    def barrier(self, opts):
        error = NumberedError(self.raised)
        self.raised += 1
        RAISED.append(weakref.ref(error))
        raise error


RAISED = []


dist.register_backend("gated", Gated)
dist.register_backend("answering", Answering)
dist.register_backend("faulty", Faulty)


async def coroutine(value):
    await asyncio.sleep(0)
    return value


def future(value):
    outcome = concurrent.futures.Future()
    outcome.set_result(value)
    return outcome


class Received:
    def __init__(self, source):
        self.source_rank = lambda: source

    def wait(self):
        return True


WRONG = [0, 5, True, False, 1.5, "done", np.ones(1), [], b"", np.int64(1)]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_what_is_returned_is_nothing_or_is_awaited(monkeypatch, value):
    group, data = alone("answering"), np.zeros(2)
    for answer in (lambda self: value, lambda self: coroutine(value)):
        monkeypatch.setattr(Answering, "answer", answer, raising=False)
        said = "allreduce of a backend returned"
        with pytest.raises(dist.DistBackendError, match=said) as caught:
            group.allreduce(data).wait()
        assert isinstance(caught.value.__cause__, dist.InvalidTypeError)
        assert f"returned {value!r}, which cannot be waited for" in str(caught.value)
    # What a library's future gives says nothing about the method.
    for make in (future, lambda it: coroutine(future(it)), lambda it: coroutine(None)):
        monkeypatch.setattr(Answering, "answer", lambda self, make=make: make(value))
        group.allreduce(data).wait()
    group.shutdown()


@pytest.mark.parametrize("make", [lambda it: it, coroutine, future, Received])
def test_the_sender_is_a_rank_of_the_group(monkeypatch, make):
    group, data = alone("answering"), np.zeros(2)
    for rank in (0, np.int32(0)):
        monkeypatch.setattr(Answering, "answer", lambda self, rank=rank: make(rank), raising=False)
        work = group.recv_anysource([data])
        work.wait()
        assert work.source_rank() == 0
    for rank in (-3, 1, 2**40):
        monkeypatch.setattr(Answering, "answer", lambda self, rank=rank: make(rank), raising=False)
        with pytest.raises(dist.DistBackendError, match="recv_anysource of a backend") as caught:
            group.recv_anysource([data]).wait()
        assert isinstance(caught.value.__cause__, dist.InvalidArgumentError)
        assert f"rank {rank} sent; the group has the ranks 0 to 0" in str(caught.value)
    group.shutdown()


def test_what_methods_raise_and_return():
    group, data = alone("faulty"), np.zeros(2)
    with pytest.raises(dist.DistBackendError, match="UnclearError: .its __str__ raised ValueError"):
        group.allreduce(data).wait()
    group.broadcast(data, 0).wait()
    assert list(data) == [5, 5], "an async wait() is awaited"
    with pytest.raises(dist.DistBackendError, match="NotImplementedError: no kernel for this"):
        group.reduce(data, 0).wait()
    with pytest.raises(dist.UnsupportedError, match="the backend 'faulty' does not support"):
        group.scatter(data, [data], 0).wait()


def failure_of(work):
    with pytest.raises(dist.DistBackendError) as caught:
        work.wait()
    return caught.value


def test_each_error_has_its_own_cause_which_ends_with_the_group():
    group = alone("faulty")
    works = [group.barrier() for _ in range(3)]
    # When the last has failed, all have.
    assert [failure_of(work).__cause__.number for work in reversed(works)] == [2, 1, 0]
    del works, group
    deadline = time.monotonic() + LIMIT
    while any(error() is not None for error in RAISED[-3:]):
        assert time.monotonic() < deadline, "what was raised is kept"
        gc.collect()
        time.sleep(0.01)


def chained(here):
    group = over(here, "chained", "gated")
    data = np.ones(2)

    def more(_):
        group.allreduce(data).wait()
        return data.copy()

    future = group.barrier().get_future().then(more)
    Gated.gate.set()
    assert list(future.wait()) == [here.size] * 2


def test_a_callback_may_wait_for_the_next_operation_of_its_group(pair):
    pair.run(chained)


FORKED = '''
import os
import numpy as np
import polyrank as dist


class Alone:
    def allreduce(self, tensors, opts):
        pass

    def abort(self):
        os._exit(3)

    shutdown = abort


dist.register_backend("alone", lambda *_: Alone())
group = dist.ProcessGroup(dist.HashStore(), 0, 1, backend="alone", timeout=20)
data = np.ones(2)
group.allreduce(data).wait()
child = os.fork()
if child == 0:
    status = 1
    try:
        for call in (
            lambda: group.allreduce(data),
            lambda: group.send([data], 0),
            lambda: group.recv([data], 0),
        ):
            try:
                call().wait()
            except dist.InvalidGroupError as error:
                assert "forked child" in str(error), error
            else:
                raise AssertionError("a child used the backend of its parent")
        group.abort()
        del group
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
group.allreduce(data).wait()
os._exit(0)
'''


def test_a_forked_child_has_no_backend_of_its_parent():
    command = [sys.executable, "-c", FORKED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT)
    assert ended.returncode == 0, ended.stderr


def differing(here):
    names = ("tcp", "over_store")
    with pytest.raises(dist.PolyrankError) as caught:
        over(here, "differing", names[here.rank % 2])
    said = str(caught.value)
    for rank, name in enumerate(names):
        assert f"rank {rank} has cpu tensors served by {name}" in said, said


def test_ranks_with_different_backends_say_which(pair):
    pair.run(differing)


def known_to_one(here):
    store = dist.PrefixStore("known to one", here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=LIMIT)
    name = f"of_rank_{here.rank}"
    if not dist.is_backend_available(name):
        dist.register_backend(name, OverStore)
    with pytest.raises(dist.PolyrankError) as caught:
        dist.new_group(backend="of_rank_0")
    said = str(caught.value)
    assert "Unknown backend type 'of_rank_0'" in said, said
    assert here.rank == 1 or "rank 1 does not join" in said, said
    # The next group of these ranks is the same on both.
    data = np.ones(2)
    dist.all_reduce(data, group=dist.new_group(backend="over_store"))
    assert list(data) == [here.size] * 2
    dist.destroy_process_group()


def test_a_name_that_one_rank_has_not_registered_fails_on_all(pair):
    pair.run(known_to_one)
