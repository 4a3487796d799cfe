"""The launcher: `python -m polyrank.run --nproc-per-node=4 train.py` is `polyrank run ...`."""

import os
import signal
import sys
from collections.abc import Callable

from polyrank import _core


def main() -> int:
    """Starts the ranks that the command line asks for, and waits for them; the exit code."""
    # The launcher handles signals itself; Python's handler would only raise when it is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Scripts run with the interpreter that runs this one.
    os.environ.setdefault("POLYRANK_PYTHON", sys.executable)
    # Not part of the API, so it is not in the stub.
    launch: Callable[[list[str]], int] = getattr(_core, "_launch")
    return launch(["polyrank", "run", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
