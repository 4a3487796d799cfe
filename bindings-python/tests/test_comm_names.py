"""Names that users give to operations: in errors, for hooks, by thread and by asyncio task."""

import asyncio
import queue
import threading
from collections import Counter
from datetime import timedelta

import numpy as np
import pytest

import polyrank


def told_to_hooks(here):
    group = here.make_group("comm names: hooks")
    seen, ended = [], queue.Queue()
    note = lambda args: seen.append((args.name, args.comm_name))  # noqa: E731
    group.register_pre_hook(0, note)
    group.register_post_hook(0, note)
    # Called on the thread that notices the end, which need not be the one that waits.
    group.register_completion_hook(0, lambda args: ended.put((args.name, args.comm_name)))
    tensor = np.ones(3)
    block = polyrank.record_comm("outer")
    with block:
        group.allreduce(tensor).wait()
        with polyrank.record_comm(name="inner"), block, polyrank.record_comm("innermost"):
            group.broadcast(tensor, 0).wait()
        polyrank.all_reduce(tensor, group=group)
        thread = threading.Thread(target=lambda: group.barrier().wait())
        thread.start()
        thread.join()
    group.barrier().wait()
    expected = [
        ("ALLREDUCE", "outer"),
        ("BROADCAST", "innermost"),
        ("ALLREDUCE", "outer"),
        ("BARRIER", None),
        ("BARRIER", None),
    ]
    assert seen == [one for one in expected for _ in range(2)]
    assert Counter(ended.get(timeout=60) for _ in expected) == Counter(expected)
    seen.clear()
    with polyrank.record_comm("objects"):
        polyrank.all_gather_object([None] * here.size, here.rank, group=group)
    assert set(seen) == {("ALL_GATHER_OBJECT", "objects")}
    assert ended.get(timeout=60) == ("ALL_GATHER_OBJECT", "objects")
    group.shutdown()


def test_hooks_are_given_names(world):
    world.run(told_to_hooks)


def said_by_errors(here):
    group = here.make_group("comm names: errors")
    if here.rank == 0:
        with polyrank.record_comm("FSDP::all_gather (layer1)"):
            work = group.allreduce(np.ones(4, np.float32))
        with pytest.raises(polyrank.WaitTimeoutError) as caught:
            work.wait(timedelta(milliseconds=1))
        assert caught.value.collective == "allreduce 'FSDP::all_gather (layer1)'"
        assert "; allreduce 'FSDP::all_gather (layer1)' (operation " in str(caught.value)
        assert repr(work).startswith("Work(allreduce 'FSDP::all_gather (layer1)' #")
        here.group.barrier().wait()
        work.wait()
    else:
        here.group.barrier().wait()
        group.allreduce(np.ones(4, np.float32)).wait()
    with polyrank.record_comm("left open"):
        work = group.recv([np.ones(3)], 1 - here.rank)
    here.group.barrier().wait()
    group.abort()
    with pytest.raises(polyrank.AbortedError) as caught:
        work.wait()
    assert caught.value.collective == "recv 'left open'"
    with pytest.raises(TypeError):
        polyrank.record_comm(3)


def test_errors_say_names(pair):
    pair.run(said_by_errors)


def said_by_every_kind(here):
    def failing(name, kind, call):
        group = here.make_group(f"comm names: {kind.__name__}")
        with polyrank.record_comm("layer 4"), pytest.raises(kind) as caught:
            call(group)
        assert f"{name} 'layer 4'" in str(caught.value), str(caught.value)
        assert caught.value.collective == f"{name} 'layer 4'"

    peer = 1 - here.rank
    failing(
        "allreduce",
        polyrank.CollectiveMismatchError,
        lambda group: group.allreduce(np.ones(1 + here.rank)).wait(),
    )

    def of_another_size(group):
        received = group.recv([np.ones(2)], here.rank)
        group.send([np.ones(3)], here.rank)
        received.wait()

    failing("recv", polyrank.MessageSizeError, of_another_size)

    def of_another_type(group):
        received = group.recv([np.ones(2)], here.rank)
        group.send([np.ones(2, np.int64)], here.rank)
        received.wait()

    failing("recv", polyrank.MessageDTypeError, of_another_type)

    def aborted(group):
        window = group.new_window()
        group.barrier().wait()
        group.abort()
        window.signal(peer)

    failing("signal", polyrank.AbortedError, aborted)


def test_every_kind_of_message_says_the_name(pair):
    pair.run(said_by_every_kind)


def in_tasks(here):
    group = here.make_group("comm names: tasks")
    seen = []
    group.register_pre_hook(0, lambda args: seen.append(args.comm_name))
    turns = [asyncio.Event() for _ in range(4)]

    async def first():
        with polyrank.record_comm("first"):
            await group.barrier()
            turns[0].set()
            await turns[1].wait()
            await group.barrier()
            turns[2].set()

    async def second():
        await turns[0].wait()
        await group.barrier()
        with polyrank.record_comm("second"):
            turns[1].set()
            await turns[2].wait()
            await group.barrier()

    async def main():
        await asyncio.gather(first(), second())

    asyncio.run(main())
    assert seen == ["first", None, "first", "second"]
    group.shutdown()


def test_each_task_has_names_of_its_own(pair):
    pair.run(in_tasks)


def seen_names(group):
    seen = []
    group.register_pre_hook(0, lambda args: seen.append(args.comm_name))
    return seen


def test_it_decorates_functions():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="decorated")
    seen = seen_names(group)

    @polyrank.record_comm("layer 1")
    def step(ones, *, scale):
        """What it does."""
        group.allreduce(ones).wait()
        return scale * ones

    @polyrank.record_comm("layer 2")
    async def awaited():
        await asyncio.sleep(0)
        await group.barrier()
        return "done"

    assert (step.__name__, step.__doc__) == ("step", "What it does.")
    for _ in range(2):
        assert step(np.ones(2), scale=3).tolist() == [3, 3]
    assert asyncio.run(awaited()) == "done"
    with pytest.raises(TypeError):
        step()
    group.barrier().wait()
    assert seen == ["layer 1", "layer 1", "layer 2", None]
    group.shutdown()


def shared_blocks():
    """Several threads enter one block at a time; blocks of generators end in any order."""
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="shared")
    seen = seen_names(group)
    block, in_group = polyrank.record_comm("shared"), polyrank.process_group(group)
    entered, leave = threading.Barrier(3), threading.Barrier(3)

    def enter():
        with block, in_group:
            entered.wait()
            group.barrier().wait()
            assert polyrank.current_process_group() is not None
            leave.wait()
        group.barrier().wait()
        with pytest.raises(polyrank.NotInitializedError):
            polyrank.current_process_group()

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait()
    group.barrier().wait()
    leave.wait()
    for thread in threads:
        thread.join()
    assert sorted(map(str, seen)) == ["None", "None", "None", "shared", "shared"]
    seen.clear()

    def generator(name):
        with polyrank.record_comm(name):
            yield

    first, second = generator("first"), generator("second")
    next(first)
    next(second)
    first.close()
    group.barrier().wait()
    second.close()
    group.barrier().wait()
    assert seen == ["second", None]
    group.shutdown()


def test_blocks_may_be_shared_and_end_in_any_order():
    shared_blocks()


def test_a_task_keeps_the_name_of_the_block_in_which_it_was_started():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="tasks")
    seen = seen_names(group)

    async def later():
        await group.barrier()

    async def main():
        with polyrank.record_comm("started"):
            task = asyncio.create_task(later())
        await group.barrier()
        await task

    asyncio.run(main())
    assert sorted(map(str, seen)) == ["None", "started"]
    group.shutdown()
