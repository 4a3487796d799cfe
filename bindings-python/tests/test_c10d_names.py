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


def private_names(rank, size):
    c10d = dist.distributed_c10d
    group = dist.default_group()
    world, ranks = c10d._world, list(range(size))
    assert world.default_pg == group and world.group_count == dist.get_pg_count() == 1
    backend, store = world.pg_map[group]
    assert backend == "tcp" and isinstance(store, dist.Store)
    assert world.pg_names[group] == c10d._get_process_group_name(group) == group.group_name
    assert world.pg_group_ranks[group] == {it: it for it in ranks}
    assert world.pg_backend_config[group] == dist.get_backend_config(group)
    assert group in world.pg_map and c10d._get_pg_default_device() == "cpu"
    reverse = dist.new_group(ranks[::-1], sort_ranks=False) if size > 1 else group
    assert world.pg_group_ranks[reverse] == {it: reverse.ranks().index(it) for it in ranks}
    with pytest.raises(TypeError, match="not iterable"):
        list(world.pg_names)
    if reverse is not group:
        dist.destroy_process_group(reverse)
        assert reverse not in world.pg_names
        with pytest.raises(KeyError):
            world.pg_group_ranks[reverse]
    gathered = np.zeros(2 * size)
    with pytest.warns(FutureWarning, match="all_gather_single"):
        assert c10d._all_gather_base(gathered, np.full(2, float(rank))) is None
    assert list(gathered) == [it for it in ranks for _ in range(2)]
    part = np.zeros(2)
    with pytest.warns(FutureWarning, match="reduce_scatter_single"):
        dist._reduce_scatter_base(part, np.arange(2.0 * size), async_op=True).wait()
    assert list(part) == [size * (2 * rank), size * (2 * rank + 1)]
    for dst in {0, size - 1}:
        output = np.zeros((size, 3)) if rank == dst else None
        dist.gather_single(value(rank, 0), output, dst)
        assert output is None or np.array_equal(output, [value(it, 0) for it in ranks])
    with pytest.raises(polyrank.InvalidArgumentError, match="not both"):
        dist.gather_single(part, None, 0, group_dst=0)
    manager_of = c10d._coalescing_manager(async_ops=True)
    with manager_of as manager:
        dist.all_reduce(part)
    assert isinstance(manager, c10d._CoalescingManager)
    manager.wait()


def run_private_names(here):
    with_default(here, "private names", private_names)


def test_what_programs_read_of_the_private_module(world):
    world.run(run_private_names)


def shrunk(rank, size):
    group = dist.default_group()
    with pytest.raises(polyrank.InvalidArgumentError, match="SHRINK_DEFAULT"):
        dist.shrink_group([0], shrink_flags=7)
    if rank == size - 1:
        return
    flags = dist.SHRINK_ABORT if size > 2 else dist.SHRINK_DEFAULT
    assert dist.shrink_group({size - 1}, shrink_flags=flags) == group
    assert group.size() == size - 1
    total = np.ones(1)
    group.allreduce(total).wait()
    assert total[0] == size - 1


def run_shrunk(here):
    if here.size > 1:
        with_default(here, "shrunk", shrunk)


def test_a_group_goes_on_without_a_rank(world):
    world.run(run_shrunk)


def test_which_operators_take_complex_numbers():
    with polyrank.ProcessGroup(polyrank.HashStore(), 0, 1) as group:
        names = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "LOR",
                 "LXOR", "MAXLOC", "MINLOC"]
        operators = [getattr(dist.ReduceOp, name) for name in names]
        operators += [dist._make_nccl_premul_sum(2.0), dist.ReduceOp.custom(np.add)]
        for op in operators:
            try:
                group.allreduce(np.ones(2, np.complex64), op).wait()
                taken = True
            except polyrank.UnsupportedDTypeError:
                taken = False
            assert dist.supports_complex(op) == taken, op


def test_names_of_c10d_at_the_top():
    names = ["all_gather_multigpu", "all_reduce_multigpu", "broadcast_multigpu", "reduce_multigpu",
             "reduce_scatter_multigpu", "_make_nccl_premul_sum", "dist_backend", "shrink_group"]
    for module in (polyrank, dist, dist.distributed_c10d):
        assert [name for name in names if not hasattr(module, name)] == []
    assert polyrank._make_nccl_premul_sum(2.0) == polyrank.premul_sum(2.0)
    with pytest.raises(dist.DistQueueEmptyError):
        polyrank.HashStore().queue_pop("nothing", False)


def test_configurations_of_backends():
    config = dist.BackendConfig
    assert config("TCP").get_device_backend_map() == {"cpu": "tcp", "cuda": "tcp"}
    assert repr(config("cpu:gloo,cuda:nccl")) == "cpu:gloo,cuda:nccl"
    assert config(dist.Backend.UNDEFINED).device_backend_map["cpu"] == "tcp"
    for wrong in ("cpu:tcp,cpu:tcp", "toaster:tcp", "cpu:", "cpu:unheard", "unheard"):
        with pytest.raises(ValueError):
            config(wrong)


def test_groups_over_gloo_are_over_tcp():
    with dist.ProcessGroupGloo(polyrank.HashStore(), 0, 1, 5) as group:
        assert isinstance(group, dist.ProcessGroup)
        assert (group.timeout.total_seconds(), dist.get_backend(group)) == (5, "gloo")


def run_names(here):
    c10d = dist.distributed_c10d
    assert c10d._backend == dist.Backend.UNDEFINED and c10d.dist_backend is dist.Backend
    with pytest.raises(polyrank.NotInitializedError):
        c10d._check_default_pg()
    with_default(here, "names", names)


def test_the_names_of_the_private_module(pair):
    pair.run(run_names)
