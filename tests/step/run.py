"""A Python rank that is told nothing but by what started it, and says what all ranks add up to.

`examples/step.rs` is the same in Rust. With three words (a folder, a name, another job's name) it
goes on when a job of that other name has come as far, so that both have their groups at once.
"""

import pathlib
import sys
import time

import numpy as np
import polyrank as pr

PATIENCE_S = 60


def main(words):
    """Adds the ranks, counted from 1."""
    pr.init_process_group()
    rank, size = pr.get_rank(), pr.get_world_size()
    if words and rank == 0:
        folder, own, other = pathlib.Path(words[0]), words[1], words[2]
        (folder / own).touch()
        began = time.monotonic()
        while not (folder / other).exists():
            assert time.monotonic() < began + PATIENCE_S, f"{other} did not come"
    pr.barrier()
    total = np.array([rank + 1])
    pr.all_reduce(total)
    print(f"Python rank {rank} of {size}: {total[0]}", flush=True)
    pr.destroy_process_group()


main(sys.argv[1:])
