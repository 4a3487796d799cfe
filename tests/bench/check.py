"""Whether one build of polyrank is slower than another: twelve cells, each measured with the ranks
of both builds standing at the same time and taking turns (A B, B A, ...), so that other load on
the machine meets both alike. What ranks find out once, such as where their memory lies, can make
one job faster than another of the same build: so there are several rounds, each with new jobs. The
ratio of a cell is the median over the rounds of what their turns have as their median.

A cell that looks slower is measured again, in twice as many rounds, and counts by all of them. Ends
with status 1 if a cell is over the limit then, and names it.

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
    parser.add_argument("--rounds", type=int, default=5, help="times that ranks are started anew")
    add_turn_options(parser, turns=15, seconds=0.03)
    options = parser.parse_args()
    paths = {"base": options.base, "this": os.environ.get("PYTHONPATH", "")}
    rounds = {cell: [] for cell in CELLS}
    for _ in range(options.rounds):
        measure_round(paths, rounds, CELLS, options)
    suspects = [cell for cell in CELLS if ratio(rounds[cell]) > options.limit]
    for _ in range(2 * options.rounds if suspects else 0):
        measure_round(paths, rounds, suspects, options)
    show(rounds, options)
    slower = [cell for cell in CELLS if ratio(rounds[cell]) > options.limit]
    for cell in slower:
        base, this = (microseconds(rounds[cell], name) for name in ("base", "this"))
        times = f"{this:.1f} µs, {base:.1f} µs before ({ratio(rounds[cell]):.2f})"
        print(f"slower: {cell.operation} of {cell.size} B on {cell.world} ranks: {times}")
    sys.exit(1 if slower else 0)


def measure_round(paths, rounds, cells, options):
    """Starts the ranks of both builds, and adds what the cells take to their `rounds`."""
    for world in sorted({cell.world for cell in cells}):
        # Who joins first has the better places; it is not always the same build.
        names = list(paths)[:: -1 if len(rounds[cells[0]]) % 2 else 1]
        jobs = {name: local_job("polyrank", world, {"PYTHONPATH": paths[name]}) for name in names}
        try:
            for cell in (it for it in cells if it.world == world):
                rounds[cell].append(measure(jobs, cell.operation, cell.size, options))
        finally:
            for job in jobs.values():
                job.end()


def show(rounds, options):
    """Prints the table."""
    text = f"{options.rounds} rounds of {options.turns} turns, µs"
    print(f"{text}; ratio this / base, limit {options.limit:.2f}\n")
    print("| operation | ranks | bytes | base | this | ratio | rounds |")
    print("|---|---|---|---|---|---|---|")
    for cell, results in rounds.items():
        base, this = (microseconds(results, name) for name in ("base", "this"))
        row = [cell.operation, cell.world, cell.size, f"{base:.1f}", f"{this:.1f}"]
        row += [f"{ratio(results):.2f}", " ".join(f"{ratio([it]):.2f}" for it in results)]
        print(f"| {' | '.join(map(str, row))} |")


def ratio(results):
    """The median, over rounds, of the median of the ratios of turns that follow one another: both
    met the same load."""
    pairs = [zip(it["this"], it["base"], strict=True) for it in results]
    ratios = [[this / base for (this, _), (base, _) in it] for it in pairs]
    return statistics.median(statistics.median(it) for it in ratios)


def microseconds(results, name):
    """The median time of an operation of a build."""
    return statistics.median(wall for it in results for wall, _ in it[name]) * 1e6


if __name__ == "__main__":
    main()
