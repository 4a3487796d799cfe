"""What a work is besides a handle: a future of two libraries, a number, a length of time; and
groups that are left by `with`."""

import asyncio
import concurrent.futures
from datetime import timedelta

import numpy as np
import pytest

import polyrank


def a_future_of_concurrent_futures(here):
    tensor = np.full(3, 1.0 + here.rank)
    future = here.group.allreduce(tensor).get_future()
    assert isinstance(future, concurrent.futures.Future)
    assert isinstance(future, polyrank.Future)
    done, pending = concurrent.futures.wait([future], timeout=60)
    assert done == {future} and not pending
    assert next(iter(concurrent.futures.as_completed([future]))) is future
    assert future.result()[0] is tensor and future.result(1)[0] is tensor
    assert future.exception() is None
    assert not future.cancel() and not future.cancelled() and future.done()
    expected = sum(range(1, here.size + 1))
    assert tensor.tolist() == [expected] * 3

    async def wrapped():
        more = np.ones(2)
        outputs = await asyncio.wrap_future(here.group.allreduce(more).get_future())
        assert outputs[0] is more
        chained = here.group.allreduce(more).get_future().then(lambda it: it.value()[0].sum())
        results = await asyncio.gather(
            asyncio.wrap_future(chained),
            asyncio.wrap_future(here.group.barrier().get_future_result()),
        )
        return results

    total, status = asyncio.run(wrapped())
    assert total == 2 * here.size**2
    assert status == polyrank.WorkResult.SUCCESS


def test_a_future_is_one_of_concurrent_futures(world):
    world.run(a_future_of_concurrent_futures)


def failures(here):
    group = here.make_group("failures of futures")
    future = group.recv([np.zeros(1)], 1 - here.rank).get_future()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0.01)
    assert future.running() and not future.done() and not future.cancel()
    chained = future.then(lambda it: it.value())
    here.store.barrier("both futures run", here.size)

    async def wrapped():
        waiting = asyncio.wrap_future(future)
        group.abort()
        with pytest.raises(polyrank.AbortedError):
            await waiting

    asyncio.run(wrapped())
    assert isinstance(future.exception(), polyrank.AbortedError)
    assert isinstance(chained.exception(60), polyrank.AbortedError)
    with pytest.raises(polyrank.AbortedError):
        future.result()


def test_a_future_fails_as_its_work(pair):
    pair.run(failures)


def number_and_length(here):
    group = here.make_group("number and length")
    works = [group.allreduce(np.ones(100_000)) for _ in range(3)]
    [work.wait() for work in works]
    assert [work.sequence for work in works] == [1, 2, 3]
    assert works[2]._get_sequence_number() == 3
    for work in works:
        assert isinstance(work.duration, timedelta)
        assert isinstance(work.duration, timedelta)
        assert work.duration == work.duration, "it is over"
        assert work._get_duration() == pytest.approx(work.duration.total_seconds() * 1e3, abs=1e-2)
    late = group.recv([np.zeros(1)], here.rank)
    first = late.duration
    while late.duration == first:
        pass
    group.send([np.zeros(1)], here.rank)
    assert late.wait()


def test_works_have_a_number_and_a_length(world):
    world.run(number_and_length)


def left_by_with(here):
    with here.make_group("left by with") as group:
        assert isinstance(group, polyrank.ProcessGroup)
        tensor = np.ones(1)
        group.allreduce(tensor).wait()
        assert tensor[0] == here.size
    with pytest.raises(polyrank.DistError):
        group.barrier().wait()
    with pytest.raises(ZeroDivisionError), here.make_group("left with an error") as group:
        1 / 0
    with pytest.raises(polyrank.DistError):
        group.barrier().wait()
    with here.make_group("left twice") as group:
        group.shutdown()


def test_a_group_is_left_at_the_end_of_its_block(world):
    world.run(left_by_with)


def test_the_default_group_is_destroyed_at_the_end_of_its_block():
    polyrank.init_process_group(store=polyrank.HashStore(), rank=0, world_size=1)
    with polyrank.default_group() as group:
        assert polyrank.is_initialized()
        assert polyrank.group.WORLD == group
    assert not polyrank.is_initialized()


def attributes(here):
    tensor = np.zeros(2)
    one = polyrank.P2POp(polyrank.irecv, tensor, group=here.group, tag=5, group_peer=here.size - 1)
    assert one.op is polyrank.irecv and one.tensor is tensor
    assert (one.peer, one.group_peer, one.tag) == (here.size - 1, here.size - 1, 5)
    assert one.group == here.group or one.group.group_name == here.group.group_name
    with pytest.raises(AttributeError):
        one.tag = 6


def test_a_p2p_op_says_what_it_is(pair):
    pair.run(attributes)


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_stores_list_their_keys(kind, tmp_path):
    if kind == "hash":
        store = polyrank.HashStore()
    elif kind == "file":
        store = polyrank.FileStore(str(tmp_path / "store"))
    else:
        store = polyrank.TCPStore("127.0.0.1", 0, is_master=True)
    assert store.list_keys() == []
    store.set("a", "1")
    store.add("under/b", 2)
    assert sorted(store.list_keys()) == ["a", "under/b"]
    assert polyrank.PrefixStore("under", store).list_keys() == ["b"]
