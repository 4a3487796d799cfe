"""Holds this rank in pdb, for `breakpoint`: finds the caller, and the terminal. Knows nothing of
the other ranks, which wait meanwhile.
"""

import bdb
import io
import os
import pdb
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

from polyrank import _core
from polyrank._call_site import site_of

__all__: list[str] = []

_hold = getattr(_core, "_hold")
_calls: dict[tuple[str, int], int] = {}
_input: IO[str] | None = None


def caller(skip: int) -> FrameType | None:
    """Who called `breakpoint`; nobody, if this line has not called it more than `skip` times."""
    frame: FrameType = getattr(sys, "_getframe")(1)
    if skip > 0:
        line = (frame.f_code.co_filename, frame.f_lineno)
        _calls[line] = _calls.get(line, 0) + 1
        if _calls[line] <= skip:
            return None
    return frame


def hold(rank: int, frame: FrameType) -> Callable[[], None] | str:
    """Holds this rank, at `frame`, until its user lets it go on. What is returned has to be called
    when it does: last of all, as what is called from then on may be stepped through. A text, if it
    could not be held: what has no debugger, and why.
    """
    try:
        debugger = _Debugger(rank, *_console())
    except (_NoTerminalError, OSError) as error:
        return f"rank {rank} ({error})"
    return debugger.hold(frame)


class _NoTerminalError(Exception):
    """There is nobody who could type."""


class _Debugger(pdb.Pdb):
    """pdb, on the terminal: while it waits for a command, the rank is known to be held."""

    def __init__(self, rank: int, terminal: "_Terminal | None", streams: dict[str, Any]) -> None:
        super().__init__(nosigint=True, **streams)
        self._rank = rank
        self._terminal = terminal
        self.prompt = f"[rank {rank}] (Pdb) "

    def hold(self, frame: FrameType) -> Callable[[], None]:
        """As `hold` of the module."""
        self.reset()
        above: FrameType | None = frame
        while above is not None:
            above.f_trace = self.trace_dispatch
            self.botframe = above
            above = above.f_back
        self.set_step()
        self.interaction(frame, None)
        if getattr(self, "quitting", False):
            raise bdb.BdbQuit
        # Only breakpoints count where the user lets it continue, and there may be none.
        is_over = getattr(self, "stoplineno", 0) == -1 and not self.breaks
        return _nothing if is_over else self._trace

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        _hold(self._rank, site_of(frame) or "?")
        before = sys.stdin
        try:
            with self._terminal.taken() if self._terminal else _untaken():
                sys.stdin = self.stdin
                super().interaction(frame, traceback)
        finally:
            sys.stdin = before
            _hold(self._rank, None)

    def _trace(self) -> None:
        start = getattr(self, "start_trace", None)
        if start is None:
            sys.settrace(self.trace_dispatch)
        else:
            start()


class _Terminal:
    """The terminal of the job, for this process, which may be one in the background: ranks have
    process groups of their own.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.give(os.getpgrp(), only_check=True)

    @contextmanager
    def taken(self) -> Generator[None, None, None]:
        before = os.tcgetpgrp(self._descriptor)
        self.give(os.getpgrp())
        try:
            yield
        finally:
            self.give(before)

    def give(self, group: int, only_check: bool = False) -> None:
        """Makes `group` the one that reads from the terminal."""
        now = os.tcgetpgrp(self._descriptor)
        # Whoever else has it would be robbed: the shell, where the job runs in the background.
        known = (os.getpgrp(), os.getpgid(os.getppid()), group)
        if now not in known and not _is_of_the_job(now):
            why = "the job runs in the background of its terminal: fetch it with fg"
            raise _NoTerminalError(why)
        if only_check or now == group:
            return
        # The system stops a background process that takes a terminal, unless this is blocked.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            os.tcsetpgrp(self._descriptor, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _is_of_the_job(group: int) -> bool:
    """Whether a process group is that of a process that has led to this one, as the launcher and
    what it wraps ranks in are: all between this and the leader of its session, the shell.
    """
    session, process = os.getsid(0), os.getppid()
    while process > 1:
        try:
            if os.getsid(process) != session or process == session:
                return False
            if os.getpgid(process) == group:
                return True
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            # Where the system does not tell, the parent alone was asked.
            return False
    return False


def _console() -> tuple[_Terminal | None, dict[str, Any]]:
    """What the debugger reads and writes: what the launcher has given this rank as its standard
    input, or the terminal of the job.
    """
    if _is_given(0) and not os.isatty(0):
        return None, {"stdin": _standard_input(), "stdout": sys.stdout}
    if os.isatty(0) and not _has_job_control():
        # A terminal of another session, as torchrun leaves it to its ranks: it can be read.
        return None, {"stdin": _standard_input(), "stdout": sys.stdout}
    if os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp() and _is_own(sys.stdin):
        return None, {}
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise _NoTerminalError(
            "no terminal, and nothing on its standard input: start the job on a terminal, or give "
            "the rank an input, as polyrank run hands its own to rank 0"
        ) from None
    try:
        terminal = _Terminal(descriptor)
    except (_NoTerminalError, OSError):
        os.close(descriptor)
        raise
    reader = open(descriptor, encoding="utf-8", errors="replace", closefd=False)
    writer = open(descriptor, "w", encoding="utf-8", errors="replace")
    return terminal, {"stdin": reader, "stdout": writer}


def _has_job_control() -> bool:
    """Whether the standard input is the terminal of this session."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True


def _is_given(descriptor: int) -> bool:
    """Whether there is anything to read."""
    try:
        return os.fstat(descriptor).st_rdev != os.stat(os.devnull).st_rdev
    except OSError:
        return False


def _is_own(stream: Any) -> bool:
    """Whether it is this process's standard input: not what others have put in its place."""
    try:
        return bool(stream.fileno() == 0)
    except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
        return False


def _standard_input() -> Any:
    """The standard input, opened once: what is read ahead is for the next breakpoint."""
    global _input
    if _is_own(sys.stdin):
        return sys.stdin
    if _input is None:
        _input = open(os.dup(0), encoding="utf-8", errors="replace")
    return _input


@contextmanager
def _untaken() -> Generator[None, None, None]:
    yield


def _nothing() -> None:
    pass
