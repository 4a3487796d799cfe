"""What is wrong with what one rank alone gives: it is told what, and the others that it does not
come, without waiting for it. And a default group over a store that the program made."""

import re

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from polyrank import init_device_mesh


def in_world(here, name, function):
    store = polyrank.PrefixStore(name, here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=60)
    try:
        function(here)
    finally:
        dist.destroy_process_group()


def unknown_device(here):
    is_wrong = here.rank == here.size - 1
    for number, wrong in enumerate(("toaster", "cpu:3", object())):
        store = polyrank.PrefixStore(f"devices {number}", here.store)
        error = polyrank.InvalidArgumentError if is_wrong else polyrank.RendezvousError
        with pytest.raises(error, match="is not a device; expected one of cpu") as raised:
            dist.init_process_group(
                store=store,
                rank=here.rank,
                world_size=here.size,
                timeout=60,
                device_id=wrong if is_wrong else "cpu",
            )
        told = f"rank {here.size - 1} does not join group 'default_pg'"
        assert is_wrong or told in str(raised.value)
        assert not dist.is_initialized()
    in_world(here, "all devices are right", lambda _: dist.barrier())


def test_an_unknown_device_of_one_rank_is_told_to_all(trio):
    trio.run(unknown_device)


def wrong_mesh_options(here):
    last = here.size - 1
    for override, said in (
        ({"nowhere": "gloo"}, "nowhere"),
        ({7: "gloo"}, "7"),
        ({0: ("gloo", "tcp", 1)}, "backend_override"),
    ):
        given = {"backend_override": override} if here.rank == last else {}
        with pytest.raises(polyrank.InvalidArgumentError) as raised:
            init_device_mesh("cpu", (here.size,), mesh_dim_names=("x",), **given)
        assert re.search(rf"{said}", str(raised.value)), raised.value
        if here.rank != last:
            assert f"rank {last} gave" in str(raised.value)
    # Nobody waits, and the group is as good as it was.
    assert init_device_mesh("cpu", (here.size,)).size() == here.size


def test_wrong_options_of_a_mesh_of_one_rank_are_told_to_all(trio):
    trio.run(in_world, "wrong mesh options", wrong_mesh_options)


def wrong_windows(here):
    group = here.make_group("wrong windows")
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    spread = np.zeros(8)[::2]
    for wrong, said in ((spread, "must be contiguous"), (fixed, "must be writable")):
        given = wrong if here.rank == 1 else np.zeros(4)
        with pytest.raises(polyrank.InvalidArgumentError) as raised:
            group.new_window(given)
        others = "ranks [1] gave a tensor that cannot be registered"
        assert (said if here.rank == 1 else others) in str(raised.value)
    window = group.new_window(np.full(4, float(here.rank)))
    window.fence().wait()
    window.tensor_deregister().wait()
    group.shutdown()


def test_a_window_is_refused_to_all_for_the_array_of_one(trio):
    trio.run(wrong_windows)


def over_a_store_made_by_hand(here):
    if here.rank == 0:
        made = polyrank.TCPStore(
            "127.0.0.1", 0, world_size=here.size, is_master=True, wait_for_workers=False, timeout=60
        )
        here.store.set("port", str(made.port))
    else:
        port = int(here.store.get("port"))
        made = polyrank.TCPStore("127.0.0.1", port, is_master=False, timeout=60)
    dist.init_process_group(store=made, rank=here.rank, world_size=here.size, timeout=60)
    total = np.full(2, here.rank + 1.0)
    dist.all_reduce(total)
    assert list(total) == [here.size * (here.size + 1) / 2] * 2
    # The keys of the program are its own, before and after the group.
    made.set(f"mine {here.rank}", "there")
    dist.barrier()
    dist.destroy_process_group()
    made.wait([f"mine {rank}" for rank in range(here.size)])
    # Its host stays until all have looked.
    made.set(f"looked {here.rank}", "")
    if here.rank == 0:
        made.wait([f"looked {rank}" for rank in range(here.size)])


def test_the_default_group_is_made_over_a_store_of_the_program(trio):
    trio.run(over_a_store_made_by_hand)
