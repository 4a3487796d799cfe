"""What groups are made with: nothing that is given is ignored. And c10d's other names."""

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist


def default_group(here):
    store = polyrank.PrefixStore("settings", here.store)
    # The backend of such a device, which is not to be had here, or has no such device.
    with pytest.raises((polyrank.BackendUnavailableError, polyrank.InvalidArgumentError)):
        dist.init_process_group(
            store=store, rank=here.rank, world_size=here.size, device_id="cuda:999"
        )
    for wrong in ("toaster", "cpu:3", object()):
        with pytest.raises(polyrank.InvalidArgumentError, match="is not a device"):
            dist.init_process_group(
                store=store, rank=here.rank, world_size=here.size, device_id=wrong
            )
    options = polyrank.BackendOptions(timeout=21, group_name="named")
    dist.init_process_group(
        dist.Backend("GLOO"),
        store=store,
        rank=here.rank,
        world_size=here.size,
        pg_options=options,
        device_id="cpu",
    )
    world = dist.default_group()
    assert world.group_name == "named" and world.bound_device_id == "cpu"
    assert world.timeout.total_seconds() == 21 and world.backend_name() == "gloo"
    for backend, error in (("nccl", "BackendUnavailableError"), ("pigeon", "UnknownBackendError")):
        # All ranks say so, those of the group and the others.
        with pytest.raises(getattr(polyrank, error)):
            dist.new_group([0], backend=backend)
        with pytest.raises(getattr(polyrank, error)):
            world.split_group([0], opts=polyrank.BackendOptions(backend=backend))
    pair = dist.new_group(pg_options=polyrank.BackendOptions(timeout=9, group_name="pair"))
    assert pair.timeout.total_seconds() == 9 and pair.group_name == "pair"
    child = world.split_group([0, 1], opts=polyrank.BackendOptions(timeout=8))
    assert child.timeout.total_seconds() == 8
    with pytest.raises(polyrank.UnsupportedError, match="global_ranks_in_group"):
        dist.new_group(pg_options=polyrank.BackendOptions(global_ranks_in_group=[0, 1]))
    dist.barrier()
    dist.destroy_process_group()


def test_settings_of_groups(pair):
    pair.run(default_group)


def merges(here):
    half = [0, 1] if here.rank < 2 else list(range(2, here.size))
    part = here.group.split_group(half)
    store = polyrank.PrefixStore("merging", here.store)
    merged = part.merge_remote_group(store, here.size, timeout=30)
    tensor = np.full(2, float(here.rank))
    merged.allreduce(tensor).wait()
    assert (tensor == sum(range(here.size))).all()
    ranks = [np.zeros(1, np.int64) for _ in range(here.size)]
    merged.allgather(ranks, np.array([merged.rank()])).wait()
    assert [rank[0] for rank in ranks] == list(range(here.size))
    with pytest.raises(polyrank.InvalidArgumentError, match="ranks came to a merged group of 5"):
        part.merge_remote_group(store, here.size)
    return merged.group_name


def test_merged_groups(pools):
    names = pools(5).run(merges)
    assert len(set(names)) == 1 and names[0].endswith(":merge")


def test_rendezvous_handlers():
    store = polyrank.HashStore()
    asked = []

    def handler(url, timeout, rank, world_size):
        asked.append((url, timeout.total_seconds(), rank, world_size))
        yield store, 0, 1

    dist.register_rendezvous_handler("pigeon", handler)
    with pytest.raises(polyrank.RendezvousError, match="already registered"):
        dist.register_rendezvous_handler("pigeon", handler)
    with pytest.raises(polyrank.RendezvousError, match="already registered"):
        dist.register_rendezvous_handler("tcp", handler)
    found, rank, world_size = next(dist.rendezvous("pigeon://roof", 0, 1, timeout=5))
    assert (rank, world_size) == (0, 1) and asked == [("pigeon://roof", 5.0, 0, 1)]
    store.set("key", "value")
    assert found.get("key") == b"value"

    def broken(url, timeout, rank, world_size):
        raise KeyError("no pigeon")

    dist.register_rendezvous_handler("broken", broken)
    with pytest.raises(polyrank.RendezvousError, match="no pigeon"):
        dist.rendezvous("broken://roof")
    dist.register_rendezvous_handler("empty", lambda *_: iter(()))
    with pytest.raises(polyrank.RendezvousError, match="yields nothing"):
        dist.rendezvous("empty://roof")


def test_names_of_c10d():
    assert dist.Backend("Gloo") is dist.Backend.GLOO == "gloo"
    for wrong in ("pigeon", 3):
        with pytest.raises(ValueError):
            dist.Backend(wrong)
    with pytest.raises(polyrank.UnknownBackendError) as caught:
        dist.Backend("pigeon")
    with pytest.raises(polyrank.UnknownBackendError) as by_group:
        polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, backend="pigeon")
    assert str(caught.value) == str(by_group.value), "one list, and one text"
    assert (caught.value.backend, caught.value.known) == ("pigeon", by_group.value.known)
    for name in by_group.value.known.split(", "):
        assert dist.Backend(name) == name
    with pytest.warns(DeprecationWarning):
        assert dist.reduce_op.MAX == dist.ReduceOp.MAX
    half = dist.make_premul_sum(0.5)
    assert half == dist.ReduceOp.premul_sum(0.5) and half.factor == 0.5
