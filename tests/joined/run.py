"""A Python rank of groups that stand alone: no rank has a default group.

`run.mjs` is the same in JavaScript, `examples/joined.rs` in Rust.
"""

import sys
from os import environ

import numpy as np
import polyrank as pr

MINUTE = 60


def main():
    """Joins groups, leaves them, joins them again, and is refused."""
    rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    weights = pr.join_group("weights", version="7")
    views = pr.join_group("views", timeout=MINUTE)
    assert not pr.is_initialized() and weights.group_name == "weights"
    for group in (weights, views):
        check(group, rank, size)
    try:
        pr.join_group("weights")
        raise AssertionError("it joined twice")
    except pr.DuplicateGroupError as error:
        assert error.group_name == "weights", error
    pr.destroy_process_group(weights)
    # The name is free again, and so is who is which rank.
    store = views.get_group_store()
    check(rejoin("weights", store, size - 1 - rank, size), size - 1 - rank, size)
    if size > 1:
        compare_versions(rank, size)
    print(f"Python rank {rank} of {size}: joined", flush=True)
    # Without a group's name, all of them are left.
    assert pr.get_pg_count() == 2, pr.get_pg_count()
    pr.destroy_process_group()
    assert pr.get_pg_count() == 0, pr.get_pg_count()
    try:
        pr.destroy_process_group()
        raise AssertionError("there was another group")
    except pr.NotInitializedError:
        return 0


def rejoin(name, store, rank, size):
    """Joins in a store, instead of by what the environment says."""
    place = {"store": store, "rank": rank, "world_size": size}
    return pr.join_group(name, **place, timeout=MINUTE, version="8")


def check(group, rank, size):
    """Reduces numbers of the ranks."""
    assert (group.rank(), group.size()) == (rank, size)
    tensor = np.full(70_001, float(rank))
    group.allreduce([tensor]).wait()
    assert (tensor == size * (size - 1) / 2).all()


def compare_versions(rank, size):
    """The last rank comes with a version that nobody else has, until it is told so."""
    refused = False
    while rank == size - 1 and not refused:
        try:
            pr.join_group("strict", version="2", timeout=1)
            raise AssertionError("it joined ranks of another version")
        except pr.RendezvousTimeoutError:
            pass  # Nobody else was there.
        except pr.RendezvousError as error:
            refused = all(part in str(error) for part in ("'strict'", "version '2'", "version '1'"))
            assert refused, error
    while True:
        try:
            group = pr.join_group("strict", version="1", timeout=MINUTE)
            break
        except pr.RendezvousError as error:
            # The last rank was there first.
            assert rank != size - 1 and "version '2'" in str(error), error
    check(group, rank, size)
    pr.destroy_process_group(group)


if __name__ == "__main__":
    sys.exit(main())
