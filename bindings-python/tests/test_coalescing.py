"""Batches of collectives: the functions of a block return before their operations are complete."""

import numpy as np
import pytest

import polyrank
from ranks import TIMEOUT_S, Here


def with_default_group(here: Here, name: str, body, *arguments):
    store = polyrank.PrefixStore(name, here.store)
    polyrank.init_process_group(
        store=store, rank=here.rank, world_size=here.size, timeout=TIMEOUT_S
    )
    try:
        body(here, *arguments)
    finally:
        polyrank.destroy_process_group()


def batch_of_collectives(here: Here, elements: int, async_ops: bool):
    size, rank = here.size, here.rank
    tensors = [np.full(elements, rank + i, np.int64) for i in range(5)]
    gathered = np.zeros((size, elements), np.int64)
    scattered = np.zeros(elements, np.int64)
    blocks = np.repeat(np.arange(size), elements)
    with polyrank.coalescing_manager(async_ops=async_ops) as manager:
        for tensor in tensors:
            assert polyrank.all_reduce(tensor) is None
        polyrank.all_gather_into_tensor(gathered, np.full(elements, rank))
        polyrank.reduce_scatter_tensor(scattered, blocks)
        work = polyrank.all_reduce(np.ones(1), async_op=True)
        assert isinstance(work, polyrank.Work)
        assert not manager.works, "they are there when the batch has ended"
    assert len(manager.works) == 8
    manager.wait()
    assert all(work.is_success() for work in manager.works)
    for i, tensor in enumerate(tensors):
        assert (tensor == sum(range(size)) + i * size).all()
    assert (gathered == np.arange(size)[:, None]).all()
    assert (scattered == rank * size).all()
    # Outside of the block functions wait again.
    last = np.full(elements, 1)
    polyrank.all_reduce(last)
    assert (last == size).all()


@pytest.mark.parametrize("elements", [0, 1, 7, 50_001])
@pytest.mark.parametrize("async_ops", [False, True])
def test_a_batch_is_waited_for_at_its_end(world, elements, async_ops):
    name = f"batch {elements} {async_ops}"
    world.run(with_default_group, name, batch_of_collectives, elements, async_ops)


def calls_before_the_others(here: Here):
    """Rank 0 leaves its calls of the block before rank 1 begins them: none of them waits."""
    tensors = [np.ones(100_000) for _ in range(3)]
    if here.rank == 1:
        here.store.wait(["rank 0 has called"])
    with polyrank.coalescing_manager():
        for tensor in tensors:
            polyrank.all_reduce(tensor)
        if here.rank == 0:
            here.store.set("rank 0 has called", b"")
    assert all((tensor == 2).all() for tensor in tensors)


def test_no_call_of_a_batch_waits(pair):
    pair.run(with_default_group, "no call waits", calls_before_the_others)


def ends_of_batches(here: Here):
    tensor = np.ones(3)
    with pytest.raises(KeyError):
        with polyrank.coalescing_manager():
            polyrank.all_reduce(tensor)
            raise KeyError("of the block")
    with pytest.raises(ValueError, match="is being coalesced"):
        with polyrank.coalescing_manager():
            with polyrank.coalescing_manager():
                pass
    # A batch is one group's: calls of other groups wait.
    group = polyrank.new_group()
    other = np.ones(3)
    with polyrank.coalescing_manager(group) as manager:
        polyrank.all_reduce(other)
        assert (other == here.size).all()
    assert not manager.works
    with polyrank.coalescing_manager(group) as manager:
        polyrank.all_reduce(other, group=group)
    assert len(manager.works) == 1
    with pytest.raises(polyrank.CollectiveMismatchError):
        with polyrank.coalescing_manager():
            polyrank.all_reduce(np.ones(3 + here.rank))


def test_the_ends_of_batches(pair):
    pair.run(with_default_group, "ends of batches", ends_of_batches)


def test_torchs_name():
    assert polyrank.distributed._coalescing_manager is polyrank.coalescing_manager
