"""A Python rank that reads and writes memory of ranks of any language; NumPy says what is right.

`run.mjs` is the same in JavaScript, `examples/windows.rs` in Rust.
"""

import sys
from datetime import timedelta

import numpy as np
import polyrank as pr

# Of memory that no other process maps, and of memory that ranks of one host map.
ELEMENTS = [67, 40_003]
ROUNDS = 100


def own_values(rank, elements):
    """What a rank registers."""
    return np.arange(elements, dtype=np.int64) + rank * 1_000_000


def check(is_right, what):
    """Fails with what is wrong."""
    if not is_right:
        raise AssertionError(what)


def refused(kind, call):
    """Whether a call raises this kind of error."""
    try:
        call()
    except pr.PolyrankError as error:
        return type(error).__name__ == kind
    return False


def exchange(group, window, memory):
    """What each rank gets, puts and signals."""
    rank, size, elements = group.rank(), group.size(), memory.size
    for peer in range(size):
        got = np.zeros(elements, np.int64)
        window.get(got, peer, 0)
        check(np.array_equal(got, own_values(peer, elements)), f"got from {peer}")
        part = np.zeros(5, np.int64)
        work = window.get(part, peer, 3, async_op=True)
        work.wait()
        check(np.array_equal(part, got[3:8]), f"got a part from {peer}")
    window.fence()
    following, before = (rank + 1) % size, (rank - 1) % size
    window.put(np.array([-1 - rank]), following, 7)
    window.signal(following)
    window.wait_signal(before)
    check(memory[7] == -1 - before, f"element 7 is {memory[7]}")
    for value in range(1, ROUNDS + 1):
        window.put(np.array([value]), following, 8)
        window.signal(following)
        window.wait_signal(before)
        check(memory[8] == value, f"round {value}: {memory[8]}")
        window.signal(before, timeout=60)
        window.wait_signal(following, timeout=timedelta(seconds=60))
    # All were taken; that no other comes ends the call, and nothing else.
    late = refused("CollectiveTimeoutError", lambda: window.wait_signal(before, timeout=0.01))
    check(late, "a signal that nobody sent")
    window.flush(timeout=60)
    window.fence()


def update(group, window, memory):
    """What all ranks change at once."""
    rank, size, last = group.rank(), group.size(), memory.size - 1
    if rank == 0:
        memory[20:24] = 0
    window.fence()
    olds = np.zeros(ROUNDS, np.int64)
    for index in range(ROUNDS):
        window.fetch_and_add(np.array([1]), olds[index : index + 1], 0, 20)
    check(np.all(np.diff(olds) > 0), "what was there before does not rise")
    window.accumulate(np.array([rank]), 0, 21, pr.ReduceOp.MAX)
    won = np.full(1, -1, np.int64)
    window.compare_and_swap(np.array([rank + 1]), np.array([0]), won, 0, 22)
    window.accumulate(np.array([int(won[0] == 0)]), 0, 23)
    window.fence()
    if rank == 0:
        check(memory[20] == ROUNDS * size, f"{memory[20]} additions")
        check(memory[21] == size - 1, f"the maximum is {memory[21]}")
        check(1 <= memory[22] <= size and memory[23] == 1, f"{memory[22]} won, {memory[23]} times")

    def outside():
        window.put(np.zeros(2, np.int64), 0, last)

    check(refused("InvalidArgumentError", outside), "outside")
    check(refused("InvalidArgumentError", lambda: window.put(np.zeros(2), 0, 0)), "other dtype")
    check(refused("InvalidArgumentError", lambda: window.signal(size)), "no such rank")


def check_destroyed(window, peer):
    """Whether each call of a window is refused whose group was destroyed."""
    numbers = np.zeros(1, np.int64)
    calls = [
        lambda: window.put(numbers, peer, 0),
        lambda: window.get(numbers, peer, 0),
        lambda: window.accumulate(numbers, peer, 0),
        lambda: window.fetch_and_add(numbers, np.zeros(1, np.int64), peer, 0),
        lambda: window.signal(peer),
        lambda: window.wait_signal(peer),
        lambda: window.flush(peer),
        window.flush,
        window.fence,
        lambda: window.map_remote_tensor(peer),
        lambda: window.get_attr(peer),
        window.tensor_deregister,
        lambda: window.tensor_register(pr.empty(3, np.int64)),
    ]
    for call in calls:
        check(refused("InvalidGroupError", call), "the group was destroyed")


def main():
    """Runs all; the exit code is 1 if something was not as it should be."""
    pr.init_process_group(timeout=60)
    group = pr.default_group()
    rank, size = group.rank(), group.size()
    check(group.supports_window, "there are windows")
    check(not group.use_pg_for_symm_mem_rendezvous, "nobody has set it")
    group.use_pg_for_symm_mem_rendezvous = True
    check(group.use_pg_for_symm_mem_rendezvous, "it is kept")
    for elements in ELEMENTS:
        memory = pr.empty(elements, np.int64)
        memory[:] = own_values(rank, elements)
        window = group.new_window(memory)
        check(window.get_attr(rank) == "UNIFIED", "its own memory")
        exchange(group, window, memory)
        update(group, window, memory)
        mapped = window.map_remote_tensor(rank)
        mapped[9] = 99
        check(memory[9] == 99, "what is mapped is the same memory")
        del mapped
        # What a rank may not do now is refused, and nothing else comes of it: the rest goes on.
        second = pr.empty(5, np.int64)
        refusal = refused("InvalidArgumentError", lambda: window.tensor_register(second))
        check(refusal, "a second tensor")
        window.tensor_deregister()
        check(refused("InvalidArgumentError", lambda: window.tensor_deregister()), "closed already")
        check(refused("InvalidArgumentError", lambda: window.put(memory[:1], 0, 0)), "closed")
    unfit = pr.empty(10, np.int64)[:: 2 if rank == 0 else 1]
    made = refused("InvalidArgumentError", lambda: group.new_window(unfit))
    check(made, "rank 0 gives what cannot be registered")
    windows = [group.new_window(pr.empty(elements, np.int64)) for elements in ELEMENTS]
    pr.destroy_process_group()
    for window in windows:
        check_destroyed(window, (rank + 1) % size)
    print(f"Python rank {rank} of {size}: windows passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
