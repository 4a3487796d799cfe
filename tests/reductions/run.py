"""A Python rank that reduces with functions of its own among ranks of any language.

`run.mjs` is the same in JavaScript, `examples/reductions.rs` in Rust; expected values come from the
same fold on every rank.
"""

import functools
import sys

import numpy as np
import polyrank as pr

COUNTS = [0, 1, 67, 40_003]


def main():
    pr.init_process_group()
    rank, size = pr.get_rank(), pr.get_world_size()
    op = pr.ReduceOp.custom(combine)
    for count in COUNTS:
        tensor = values(rank, count)
        pr.all_reduce(tensor, op)
        expected = functools.reduce(combine, [values(other, count) for other in range(size)])
        np.testing.assert_array_equal(tensor, expected)
    pr.destroy_process_group()
    print(f"Python rank {rank} of {size}: {len(COUNTS)} reductions", flush=True)


def combine(lower, upper):
    """Neither commutes nor is it associative."""
    return 2 * lower + upper


def values(rank, count):
    return rank * 1000.0 + np.arange(count)


if __name__ == "__main__":
    sys.exit(main())
