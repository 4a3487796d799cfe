"""The launcher: `python -m polyrank.run --nproc-per-node=4 train.py` is `polyrank run ...`."""

import sys

from polyrank import _command


def main() -> int:
    """Starts the ranks that the command line asks for, and waits for them; the exit code."""
    return _command.run(["run", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
