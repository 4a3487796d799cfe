"""A Python rank of a group whose members change, step by step.

`run.mjs` is the same in JavaScript, `examples/reconfigure.rs` in Rust. The ranks of the default
group exchange handles in its store; the members of another group are some of them, in the order of
each step. Then they make the same steps by `configure`.
"""

import os
import sys

import numpy as np
import polyrank as pr


def steps(size):
    """The members of each step, as sets that do not meet: most steps have one."""
    everyone = list(range(size))
    return [
        [everyone],
        [everyone[1:] or everyone],
        [everyone[::-1]],
        [everyone[::2], everyone[1::2]] if size > 1 else [everyone],
        [everyone[1:] + everyone[:1]],
    ]


def main():
    """Makes all steps, and checks the sum of what the members have."""
    pr.init_process_group(timeout=60)
    rank, size = pr.get_rank(), pr.get_world_size()
    store = pr.default_group().get_group_store()
    group = pr.new_group(enable_reconfigure=True)
    assert group.supports_reconfigure
    try:
        group.allreduce([np.ones(1)])
        raise AssertionError("a group without members reduced")
    except pr.NoMembersError as error:
        assert "call reconfigure() first" in str(error), error
    done = 0
    for uuid, sides in enumerate(steps(size)):
        store.set(f"handle/{uuid}/{rank}", group.get_reconfigure_handle())
        for members in sides:
            if rank not in members:
                continue
            handles = [store.get(f"handle/{uuid}/{one}").decode() for one in members]
            options = pr.ReconfigureOptions(uuid=uuid, handles=handles, timeout=60)
            group.reconfigure(options).wait()
            check(group, members, rank)
            done += 1
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    for quorum, sides in enumerate(steps(size)):
        for side, members in enumerate(sides):
            if rank not in members:
                continue
            place = (members.index(rank), len(members))
            prefix = f"{address}/quorum/{quorum}/{side}"
            if quorum % 2:
                group.configure(prefix, *place)
            else:
                group.configure(prefix, f"replica {rank}", *place, quorum, 0, 1, members)
            check(group, members, rank)
            done += 1
    print(f"Python rank {rank} of {size}: {done} steps", flush=True)
    pr.barrier()
    pr.destroy_process_group()
    return 0


def check(group, members, rank):
    """Reduces numbers of the ranks, short and long."""
    assert (group.rank(), group.size()) == (members.index(rank), len(members))
    for elements in (1, 50_000):
        tensor = np.full(elements, float(rank))
        group.allreduce([tensor]).wait()
        assert np.all(tensor == sum(members)), tensor


if __name__ == "__main__":
    sys.exit(main())
