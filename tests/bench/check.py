"""Whether one build of polyrank is slower than another: twelve cells, each measured with the ranks
of both builds standing at the same time and taking turns (A B, B A, ...), so that other load on the
machine meets both alike. A cell that looks slower is measured again, three times as long, and
counts by all its turns. Ends with status 1 if a cell is over the limit, and names it.

    python tests/bench/check.py --base PYTHONPATH_OF_THE_OTHER_BUILD
    cargo xtask bench-check              # builds both, then runs this
"""

import argparse
import os
import statistics
import sys
from collections import namedtuple

from ranks import add_turn_options, local_job, measure

Cell = namedtuple("Cell", "operation size world")

CELLS = [
    Cell("allreduce", 4, 2),
    Cell("allreduce", 16 << 10, 2),
    Cell("allreduce", 1 << 20, 2),
    Cell("allreduce", 16 << 20, 2),
    Cell("allgather", 64 << 10, 2),
    Cell("alltoall", 4 << 20, 2),
    Cell("reduce_scatter", 1 << 20, 2),
    Cell("broadcast", 1 << 10, 2),
    Cell("sendrecv", 4, 2),
    Cell("sendrecv", 256 << 10, 2),
    Cell("allreduce", 4, 4),
    Cell("allreduce", 1 << 20, 4),
]


def main():
    """Measures all cells; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--base", required=True, help="PYTHONPATH of the build to compare with")
    parser.add_argument("--limit", type=float, default=1.10, help="highest ratio that passes")
    add_turn_options(parser, turns=31, seconds=0.05)
    options = parser.parse_args()
    paths = {"base": options.base, "this": os.environ.get("PYTHONPATH", "")}
    print(f"median of {options.turns} turns, µs; ratio this / base, limit {options.limit:.2f}\n")
    print("| operation | ranks | bytes | base | this | ratio |")
    print("|---|---|---|---|---|---|", flush=True)
    slower = []
    for world in sorted({cell.world for cell in CELLS}):
        jobs = {
            name: local_job("polyrank", world, {"PYTHONPATH": path})
            for name, path in paths.items()
        }
        try:
            slower += check([cell for cell in CELLS if cell.world == world], jobs, options)
        finally:
            for job in jobs.values():
                job.end()
    for text in slower:
        print(f"slower: {text}")
    sys.exit(1 if slower else 0)


def check(cells, jobs, options):
    """Measures the cells of one world; what is to be said of those over the limit."""
    slower = []
    for cell in cells:
        results = measure(jobs, cell.operation, cell.size, options)
        if ratio(results) > options.limit:
            longer = argparse.Namespace(**{**vars(options), "turns": 3 * options.turns})
            for name, turns in measure(jobs, cell.operation, cell.size, longer).items():
                results[name] += turns
        base, this = (microseconds(results[name]) for name in ("base", "this"))
        row = [cell.operation, cell.world, cell.size, f"{base:.1f}", f"{this:.1f}"]
        print(f"| {' | '.join(map(str, row))} | {ratio(results):.2f} |", flush=True)
        if ratio(results) > options.limit:
            name = f"{cell.operation} of {cell.size} B on {cell.world} ranks"
            slower.append(f"{name}: {this:.1f} µs, {base:.1f} µs before ({ratio(results):.2f})")
    return slower


def ratio(results):
    """The median of the ratios of turns that follow one another: both met the same load."""
    pairs = zip(results["this"], results["base"], strict=True)
    return statistics.median(this / base for (this, _), (base, _) in pairs)


def microseconds(turns):
    """The median time of an operation."""
    return statistics.median(wall for wall, _ in turns) * 1e6


if __name__ == "__main__":
    main()
