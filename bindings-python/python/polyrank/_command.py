"""The command `polyrank`, in the interpreter that this package is installed for."""

import os
import signal
import sys
from collections.abc import Callable

from polyrank import _core


def run(words: list[str]) -> int:
    """Runs the command with `words` after its name; returns the exit code."""
    # The command handles signals itself; Python's handler would only raise when it is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Scripts run with the interpreter that runs this one.
    os.environ.setdefault("POLYRANK_PYTHON", sys.executable)
    # Not part of the API, so it is not in the stub.
    command: Callable[[list[str], list[str]], int] = getattr(_core, "_command")
    return command(["polyrank", *words], [sys.executable, "-m", "polyrank"])


def main() -> int:
    """What `polyrank` and `python -m polyrank` do; the exit code."""
    return run(sys.argv[1:])
