"""Several tensors a rank by c10d's former functions, and the names of its private module."""

import importlib

import numpy as np
import polyrank
import polyrank.distributed as dist
import pytest


def with_default(here, name, body):
    store = polyrank.PrefixStore(name, here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=60)
    try:
        body(here.rank, here.size)
    finally:
        dist.destroy_process_group()


def value(rank, tensor):
    """Which element is what says who has it."""
    return np.arange(3.0) + 10 * tensor + 100 * rank


def multigpu(rank, size):
    for count in (1, 2, 3):
        every = [value(r, t) for r in range(size) for t in range(count)]
        mine = [value(rank, t) for t in range(count)]
        root, chosen = size - 1, count - 1
        dist.broadcast_multigpu(mine, root, src_tensor=chosen)
        assert all(np.array_equal(it, value(root, chosen)) for it in mine)
        mine = [value(rank, t) for t in range(count)]
        assert dist.all_reduce_multigpu(mine, dist.ReduceOp.MAX, async_op=True).wait()
        assert all(np.array_equal(it, np.max(every, axis=0)) for it in mine)
        mine = [value(rank, t) for t in range(count)]
        dist.reduce_multigpu(mine, root, dst_tensor=chosen)
        for tensor, got in enumerate(mine):
            is_root = (rank, tensor) == (root, chosen)
            expected = np.sum(every, axis=0) if is_root else value(rank, tensor)
            assert np.array_equal(got, expected)
        lists = [[np.zeros(3) for _ in range(size * count)] for _ in range(count)]
        dist.all_gather_multigpu(lists, [value(rank, t) for t in range(count)])
        assert all(np.array_equal(gathered, every) for gathered in lists)
        # In place: each input lies where it is gathered, in the last list.
        lists = [[np.zeros(3) for _ in range(size * count)] for _ in range(count)]
        for tensor in range(count):
            lists[-1][rank * count + tensor][:] = value(rank, tensor)
        dist.all_gather_multigpu(lists, lists[-1][rank * count:(rank + 1) * count])
        assert all(np.array_equal(gathered, every) for gathered in lists)
        parts = np.arange(size * count * size * count * 2.0)
        parts = parts.reshape(size, count, size * count, 2)
        for op, reduced in [
            (dist.ReduceOp.SUM, parts.sum((0, 1))),
            (dist.ReduceOp.AVG, parts.mean((0, 1))),
            (dist.ReduceOp.MIN, parts.min((0, 1))),
            (dist.premul_sum(2.0), 2 * parts.sum((0, 1))),
        ]:
            outputs = [np.zeros(2) for _ in range(count)]
            inputs = [[place.copy() for place in list_] for list_ in parts[rank]]
            dist.reduce_scatter_multigpu(outputs, inputs, op)
            assert np.allclose(outputs, reduced[rank * count:(rank + 1) * count])
            assert np.array_equal(inputs, parts[rank]), "inputs stay as they are"
    with pytest.raises(ValueError, match="2 lists"):
        dist.all_gather_multigpu([[np.zeros(3)] * size] * 2, [np.zeros(3)] * 2)
    outside = dist.GroupMember.NON_GROUP_MEMBER
    assert dist.all_reduce_multigpu([np.zeros(1)], group=outside) is None


def run_multigpu(here):
    with_default(here, "multigpu", multigpu)


def test_several_tensors_a_rank(world):
    world.run(run_multigpu)


def names(rank, size):
    c10d = importlib.import_module("polyrank.distributed.distributed_c10d")
    assert dist.distributed_c10d is c10d
    group = c10d._get_default_group()
    assert c10d._backend == "tcp" == dist.get_backend()
    assert not c10d._rank_not_in_group(group)
    assert c10d._rank_not_in_group(c10d.GroupMember.NON_GROUP_MEMBER)
    assert c10d._get_group_size(None) == c10d._get_group_size(group) == size
    assert c10d._get_group_rank(group, rank) == c10d._get_global_rank(group, rank) == rank
    c10d._check_default_pg()
    c10d._get_default_store().set(f"rank {rank}", "here")
    assert c10d.all_reduce is dist.all_reduce and c10d.P2POp is dist.P2POp
    store = dist.PrefixStore("helper", c10d._get_default_store())
    made, _ = c10d._new_process_group_helper(size, rank, [], "tcp", store, "made")
    with made:
        total = np.ones(1)
        made.allreduce(total).wait()
        assert total[0] == size


def run_names(here):
    c10d = dist.distributed_c10d
    assert c10d._backend == dist.Backend.UNDEFINED and c10d.dist_backend is dist.Backend
    with pytest.raises(polyrank.NotInitializedError):
        c10d._check_default_pg()
    with_default(here, "names", names)


def test_the_names_of_the_private_module(pair):
    pair.run(run_names)
