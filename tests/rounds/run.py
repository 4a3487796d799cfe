"""A Python rank that reduces a number again and again until somebody says stop.

For tests of what goes wrong meanwhile: `run.mjs` is the same in JavaScript, `examples/rounds.rs` in
Rust. Rank 0 stops all when its standard input ends. Prints its process, every hundredth round, and
the first error with the time at which it came.
"""

import os
import sys
import threading
import time

import numpy as np
import polyrank as pr

SHOWN = 100


def main():
    """Reduces until the sum says stop; the exit code is 3 if an operation failed."""
    pr.init_process_group(timeout=30)
    rank = pr.get_rank()
    print(f"Python rank {rank} is process {os.getpid()}", flush=True)
    wish = np.zeros(1, dtype=np.int32)
    if rank == 0:
        threading.Thread(target=wait_for_end, args=(wish,), daemon=True).start()
    rounds = 0
    try:
        while True:
            stop = wish.copy()
            pr.all_reduce(stop, op=pr.ReduceOp.MAX)
            rounds += 1
            if rounds % SHOWN == 0:
                print(f"Python rank {rank}: round {rounds}", flush=True)
            if stop[0]:
                break
        pr.destroy_process_group()
    except pr.PolyrankError as error:
        kind, culprit = type(error).__name__, getattr(error, "rank", None)
        at = round(time.time() * 1000)
        print(f"Python rank {rank}: {kind} of {culprit} at {at}: {error}", flush=True)
        return 3
    print(f"Python rank {rank}: stopped after {rounds} rounds", flush=True)
    return 0


def wait_for_end(wish):
    """Waits until nobody writes to the standard input any more."""
    sys.stdin.read()
    wish[0] = 1


if __name__ == "__main__":
    sys.exit(main())
