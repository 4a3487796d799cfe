"""One process in many groups: what they hold open and in memory is bounded, and does not stay."""

import os
import sys
import time

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from ranks import PATIENCE_S, Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it counts what /proc lists")

MAX_OPEN = 1024
MAX_BYTES = 64 << 20


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident_bytes():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


def until_no_more_than(most, count):
    """Waits: what others close, and what the background thread gives back, goes a moment later."""
    deadline = time.monotonic() + PATIENCE_S / 2
    while count() > most:
        assert time.monotonic() < deadline, f"{count()}, not {most}"


def uses(group, elements):
    total = np.full(elements, group.rank(), dtype=np.int64)
    group.allreduce(total).wait()
    size = group.size()
    assert (total == size * (size - 1) // 2).all()


def is_in_a_hundred_groups(here):
    uses(here.group, 300_001)
    before, bytes_before = descriptors(), resident_bytes()
    # By all three ways: out of a group, by a store of its own, and of some of the ranks.
    some = list(range(here.size - 1))
    groups, most = [], 0
    for number in range(100):
        if number % 3 == 0:
            made = here.group.split_group(list(range(here.size)), group_name=f"split {number}")
        elif number % 3 == 1:
            made = here.make_group(f"many groups {number}")
        else:
            made = here.group.split_group(some, group_name=f"some {number}")
        if made is not None:
            groups.append(made)
        most = max(most, descriptors())
    for group in groups:
        uses(group, 1)
        uses(group, 300_001)
    most = max(most, descriptors())
    until_no_more_than(bytes_before + MAX_BYTES, resident_bytes)
    for group in groups:
        group.shutdown()
    until_no_more_than(before + 2, descriptors)
    here.group.barrier().wait()
    return most


def test_a_hundred_groups_of_eight_ranks_fit_a_process():
    pool = Pool(8)
    try:
        most = pool.run(is_in_a_hundred_groups)
        assert max(most) <= MAX_OPEN, most
    finally:
        pool.close()


def makes_default_groups(here, count):
    store = polyrank.PrefixStore("cycles", here.store)
    most = 0
    for cycle in range(count):
        dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)
        if cycle % 10 == 0:
            total = np.ones(1)
            dist.all_reduce(total)
            assert total[0] == here.size
        most = max(most, descriptors())
        dist.destroy_process_group()
    return most


def test_a_thousand_default_groups_stay_within_64_descriptors():
    pool = Pool(2)
    try:
        for _ in range(4):
            most = pool.run(makes_default_groups, 250)
            assert max(most) <= 64, most
    finally:
        pool.close()
