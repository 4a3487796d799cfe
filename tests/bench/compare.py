"""Compares polyrank with PyTorch's Gloo backend, Python to Python, on this host: both jobs stand at
the same time, and their turns alternate, so that other load on the machine meets both alike. Knows
nothing of either library's inside. Torch has to be installed beforehand.

    python tests/bench/compare.py --worlds 2,4
    python tests/bench/compare.py --against old=/path/to/another/build   # two builds of polyrank
"""

import argparse
import os
import statistics

from ranks import OPERATIONS, add_turn_options, local_job, measure

SIZES = [4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def main():
    """Parses the command line, and measures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--worlds", default="2,4", help="numbers of ranks")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of the tensor")
    add_turn_options(parser, turns=11, seconds=0.05)
    parser.add_argument(
        "--against", help="NAME=PYTHONPATH of another polyrank, in place of Gloo"
    )
    options = parser.parse_args()
    name, _, path = (options.against or "gloo=").partition("=")
    peers = {name: path, "polyrank": os.environ.get("PYTHONPATH", "")}
    print(f"median µs of {options.turns} alternating turns; ratio: median of polyrank / {name};")
    print("CPU: µs of user and system time of all ranks for one operation\n")
    for world in map(int, options.worlds.split(",")):
        jobs = {peer: started(peer, path, world) for peer, path in peers.items()}
        try:
            for operation in options.operations.split(","):
                print_header(operation, world, list(peers))
                for size in map(int, options.sizes.split(",")):
                    print_row(size, list(peers), measure(jobs, operation, size, options))
        finally:
            for job in jobs.values():
                job.end()


def print_header(operation, world, names):
    """Opens a table."""
    first, second = names
    print(f"\n### {operation}, {world} ranks\n")
    print(f"| bytes | {first} | {second} | ratio | CPU {first} | CPU {second} |")
    print("|---|---|---|---|---|---|", flush=True)


def print_row(size, names, results):
    """Prints one row of a table."""
    walls = [statistics.median(wall for wall, _ in results[name]) for name in names]
    times = [statistics.median(cpu for _, cpu in results[name]) for name in names]
    cells = [f"{value * 1e6:.1f}" for value in walls] + [f"{walls[1] / walls[0]:.2f}"]
    cells += [f"{value * 1e6:.1f}" for value in times]
    print(f"| {size} | {' | '.join(cells)} |", flush=True)


def started(name, path, world):
    """The ranks of Gloo, or of the polyrank in `path`."""
    library = "gloo" if name == "gloo" else "polyrank"
    return local_job(library, world, {"PYTHONPATH": path})


if __name__ == "__main__":
    main()
