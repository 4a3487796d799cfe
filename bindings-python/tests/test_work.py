"""Handles: waiting, awaiting, polling, futures, limits, signals."""

import asyncio
import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import polyrank


def handles(here):
    tensor = np.ones(4)
    work = here.group.allreduce(tensor)
    assert isinstance(work, polyrank.Work)
    assert work.wait() is True
    assert work.wait() is True, "waiting twice is allowed"
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0] is tensor
    assert work.get_future().wait()[0] is tensor
    assert work.get_future().value()[0] is tensor
    assert work.get_future_result().wait() == polyrank.WorkResult.SUCCESS == 0
    with pytest.raises(ValueError):
        work.source_rank()
    outputs = [np.zeros(4) for _ in range(here.size)]
    work = here.group.allgather([outputs], [tensor])
    assert [id(t) for t in work.get_future().wait()] == [id(t) for t in outputs]
    assert here.group.barrier().get_future().wait() == []


def test_handles(pair):
    pair.run(handles)


def wait_expires(here):
    late = here.rank == 1
    if late:
        # Not before rank 0 saw its wait expire.
        here.store.wait(["expired"])
    tensor = np.ones(2)
    work = here.group.allreduce(tensor)
    if not late:
        for timeout in (0.05, 1e-3):
            with pytest.raises(polyrank.WaitTimeoutError) as caught:
                work.wait(timeout=timeout)
            assert isinstance(caught.value, TimeoutError)
            assert "allreduce" in str(caught.value)
        assert not work.is_completed()
        here.store.set("expired", "")
    work.wait()
    assert tensor.tolist() == [2.0, 2.0]
    here.store.delete_key("expired")


def test_an_expired_wait_harms_nothing(pair):
    pair.run(wait_expires)


def awaits(here):
    async def one(number):
        tensor = np.full(3, float(number))
        await here.group.allreduce(tensor)
        return tensor.tolist()

    async def main():
        works = [here.group.allreduce(np.ones(2)) for _ in range(20)]
        await asyncio.gather(*(asyncio.ensure_future(wrap(work)) for work in works))
        assert all(work.is_completed() for work in works)
        assert await one(3) == [3.0 * here.size] * 3
        tensor = np.ones(1)
        assert (await here.group.allreduce(tensor).get_future())[0] is tensor
        # A task that waits leaves the loop free for others.
        order = []
        if here.rank == 0:
            here.store.wait(["loop was free"])
        work = here.group.barrier()

        async def other():
            order.append("other")
            if here.rank == 1:
                here.store.set("loop was free", "")

        await asyncio.gather(wrap(work), other())
        assert order == ["other"]
        here.store.delete_key("loop was free")

    async def wrap(work):
        return await work

    asyncio.run(main())


def test_await(pair):
    pair.run(awaits)


def awaits_one_by_one(here):
    async def main():
        for number in range(300):
            tensor = np.full(1 + number % 3 * 5000, float(here.rank))
            if number % 2:
                await here.group.allreduce(tensor)
            else:
                await here.group.allreduce(tensor).get_future()
            assert (tensor == sum(range(here.size))).all(), number

    asyncio.run(main())


def test_an_await_needs_no_waiter(world):
    world.run(awaits_one_by_one)


def await_is_cancelled(here):
    async def main():
        work = here.group.barrier()

        async def waits():
            await work

        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            await asyncio.wait_for(waits(), 0.05)
        assert not work.is_completed()
        return work

    if here.rank == 0:
        work = asyncio.run(main())
        here.store.set("cancelled", "")
        work.wait()
    else:
        here.store.wait(["cancelled"])
        here.group.barrier().wait()
        here.store.delete_key("cancelled")


def test_a_cancelled_await_leaves_the_operation(pair):
    pair.run(await_is_cancelled)


def interrupt(here):
    if here.rank == 1:
        here.store.wait(["interrupted"])
        here.group.barrier().wait()
        here.store.delete_key("interrupted")
        return
    work = here.group.barrier()
    waiting = threading.Event()

    def press():
        waiting.wait()
        # Whenever it comes, before the wait or in it, the wait must end.
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        waiting.set()
        work.wait()
        time.sleep(1)
    presser.join()
    here.store.set("interrupted", "")
    work.wait()


def test_keyboard_interrupt_ends_a_wait(pair):
    pair.run(interrupt)


def interrupted_calls(here):
    """Calls that have no work to wait for, while another rank does not come."""
    objects = [None] * here.size
    indices, values = np.array([[0]]), np.ones(1)
    for name, call in {
        "objects": lambda group: polyrank.all_gather_object(objects, 1, group=group),
        "list": lambda group: polyrank.broadcast_object_list([None], 1, group=group),
        "sparse": lambda group: group.allreduce_sparse(indices, values),
    }.items():
        group = here.make_group(f"interrupted {name}")
        if here.rank == 1:
            here.store.wait([f"interrupted {name}"])
            group.abort()
            continue
        pressed = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
        pressed.start()
        with pytest.raises(KeyboardInterrupt):
            call(group)
            time.sleep(1)
        pressed.join()
        group.abort()
        here.store.set(f"interrupted {name}", "")


def test_keyboard_interrupt_ends_calls_that_have_no_work(pair):
    pair.run(interrupted_calls)


def other_threads_run(here):
    if here.rank == 1:
        here.store.wait(["other thread ran"])
    work = here.group.barrier()
    if here.rank == 0:
        thread = threading.Thread(target=lambda: here.store.set("other thread ran", ""))
        thread.start()
        work.wait()
        thread.join()
    else:
        work.wait()
        here.store.delete_key("other thread ran")


def test_a_wait_releases_the_gil(pair):
    pair.run(other_threads_run)


def callbacks(here):
    seen = []
    future = here.group.allreduce(np.ones(1)).get_future()
    chained = future.then(lambda f: float(f.value()[0][0])).then(lambda f: f.value() + 1)
    assert chained.wait() == here.size + 1
    assert chained.done()
    future.add_done_callback(lambda f: seen.append(f.done()))
    assert seen == [True]
    failing = future.then(lambda f: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    # Callbacks may use the group.
    again = future.then(lambda f: here.group.barrier())
    again.wait().wait()


def test_futures_and_callbacks(pair):
    pair.run(callbacks)


def called_back(here):
    group, ended = here.group, threading.Semaphore(0)
    # One after the other, so that no rank's next call moves the operation before.
    for number in range(300):
        tensor, seen = np.full(1 + number % 3 * 5000, float(here.rank)), []

        def callback(future, seen=seen):
            seen.append(future.value()[0].copy())
            ended.release()

        future = group.allreduce(tensor).get_future()
        if number % 4 == 3:
            # On most ranks it is over by then.
            group.barrier().wait()
        future.add_done_callback(callback)
        ended.acquire()
        assert (seen[0] == sum(range(here.size))).all(), number
    # Many at a time.
    for number in range(200):
        future = group.allreduce(np.ones(number)).get_future()
        future.add_done_callback(lambda _: ended.release())
    for _ in range(200):
        ended.acquire()


def test_callbacks_run_while_nobody_waits(world):
    world.run(called_back)


def many_in_flight(here):
    tensors = [np.full(number % 7, float(here.rank + number)) for number in range(200)]
    works = [here.group.allreduce(tensor) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    for number, tensor in enumerate(tensors):
        assert (tensor == sum(r + number for r in range(here.size))).all(), number
    dropped = np.ones(3)
    here.group.allreduce(dropped)  # Nobody keeps the handle: the operation goes on.
    while dropped.tolist() != [here.size] * 3:
        here.store.num_keys()  # Any call: a hang is noticed by the pool.


def test_two_hundred_operations_in_flight(world):
    world.run(many_in_flight)


def memory_is_kept_and_given_back(here):
    if here.rank == 1:
        here.store.wait(["tensor dropped"])
    tensor = np.ones(1000)
    memory = tensor.ctypes.data
    before = sys.getrefcount(tensor)
    work = here.group.allreduce(tensor)
    if here.rank == 0:
        assert sys.getrefcount(tensor) > before
        kept = tensor[:1]
        assert kept.ctypes.data == memory
        here.store.set("tensor dropped", "")
    work.wait()
    if here.rank == 0:
        assert kept[0] == 2.0, "in place"
    del work
    here.group.barrier().wait()
    gc.collect()
    if here.rank == 1:
        assert sys.getrefcount(tensor) == before
        here.store.delete_key("tensor dropped")
    resizable = bytearray(4)
    here.group.broadcast(resizable, 0).wait()
    here.group.barrier().wait()
    resizable.extend(b"the buffer was released")


def test_memory_is_kept_while_in_flight_and_given_back(pair):
    pair.run(memory_is_kept_and_given_back)


def threads(here):
    # One group for each thread: a group's calls must come in the same order on all ranks.
    groups = [here.make_group(f"threads{number}") for number in range(4)]
    totals = [np.zeros(1) for _ in groups]

    def work(group, total):
        for _ in range(50):
            tensor = np.ones(100)
            group.allreduce(tensor).wait()
            total += tensor[0]

    workers = [threading.Thread(target=work, args=pair) for pair in zip(groups, totals)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [total[0] for total in totals] == [50.0 * here.size] * 4
    for group in groups:
        group.shutdown()


def test_threads_with_a_group_each(pair):
    pair.run(threads)
