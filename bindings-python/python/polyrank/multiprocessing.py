"""Ranks as processes that this one starts: `spawn`, with the names of `torch.multiprocessing`.

    import numpy, polyrank

    def main(rank, scale):
        polyrank.init_process_group()
        tensor = numpy.full(3, scale * rank)
        polyrank.all_reduce(tensor)
        polyrank.destroy_process_group()

    if __name__ == "__main__":
        polyrank.spawn(main, args=(2.0,), nprocs=4)

`init_process_group()` needs no settings in them: they meet in a store that this process serves on
the loopback interface. Knows no group.
"""

import multiprocessing as _multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing import connection as _connection
from typing import Any, Literal, overload

from polyrank import _core

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

_GRACE_S = 30.0
"""How long the others may take to end when one has failed, after SIGTERM."""

_LOOK_S = 0.1
"""From one look at the exit codes to the next, where nobody tells of an end."""

_MAX_TEXT_BYTES = 3_500
"""Of what a process raised: with the time, less than the least that a pipe takes without a reader,
a page."""


class ProcessException(Exception):
    """A process has failed."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        #: Which one: the first argument of its function.
        self.error_index = error_index
        #: Its process id.
        self.error_pid = error_pid

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """Its function raised: the message has the traceback."""


class ProcessExitedException(ProcessException):
    """A process has ended otherwise: by a signal, or with an exit code."""

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        #: Its exit code; less than 0: the number of the signal that ended it.
        self.exit_code = exit_code
        #: The name of that signal.
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)
        return type(self), facts


class ProcessContext:
    """The processes that were started."""

    def __init__(
        self, processes: list[Any], failures: list[_connection.Connection]
    ) -> None:
        #: In the order of their ranks.
        self.processes = processes
        self._failures = failures
        self._ended: set[int] = set()

    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until all have ended, or for `timeout` seconds; whether all have.

        When one has failed the others get SIGTERM, and `grace_period` seconds (30) later SIGKILL;
        then this raises.

        Raises `ProcessRaisedException` if its function raised, else `ProcessExitedException`.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while len(self._ended) < len(self.processes):
            self._wait_for_an_end(until)
            failed = self._newly_failed()
            if failed:
                self.stop(_GRACE_S if grace_period is None else grace_period)
                raise self._first_failure(failed)
            if until is not None and time.monotonic() >= until:
                break
        return len(self._ended) == len(self.processes)

    def stop(self, grace_period: float = _GRACE_S) -> None:
        """Ends all that still run: SIGTERM, and `grace_period` seconds later SIGKILL."""
        for process in self.processes:
            process.terminate()
        until = time.monotonic() + grace_period
        while self._running() and time.monotonic() < until:
            self._wait_for_an_end(until)
        for process in self.processes:
            process.kill()
            process.join()
        self._ended.update(range(len(self.processes)))

    def _running(self) -> list[Any]:
        return [process for process in self.processes if process.exitcode is None]

    def _wait_for_an_end(self, until: float | None) -> None:
        """Waits until one of those ends that run; not for long, as what they have started may still
        hold what would tell.
        """
        left = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
        sentinels = [process.sentinel for process in self._running()]
        if sentinels:
            _connection.wait(sentinels, max(0.0, left))

    def _newly_failed(self) -> list[int]:
        """Those that have failed since it was last asked."""
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        ended = {rank: code for rank, code in codes.items() if code is not None}
        failed = [rank for rank, code in ended.items() if code != 0 and rank not in self._ended]
        self._ended.update(ended)
        return failed

    def _first_failure(self, failed: list[int]) -> ProcessException:
        """The cause: others may have raised as they were left alone, before anybody looked. What a
        signal has ended could not say when, and raises nothing.
        """
        told = {rank: self._told(rank) for rank in failed}
        first = min(failed, key=lambda rank: told[rank] or (0, ""))
        return self._failure(first, told[first])

    def _told(self, rank: int) -> tuple[int, str] | None:
        """When and what it has raised, if it has told that. What it told is there by now, and a
        pipe that somebody else still holds says nothing more.
        """
        pipe = self._failures[rank]
        try:
            if not pipe.poll():
                return None
            when, _, text = pipe.recv_bytes().decode(errors="replace").partition("\n")
            return int(when), text
        except (EOFError, OSError, ValueError):
            return None

    def _failure(self, rank: int, told: tuple[int, str] | None) -> ProcessException:
        """Why this one failed."""
        process, pid = self.processes[rank], self.processes[rank].pid
        if told is not None and told[1]:
            text = f"rank {rank} (process {pid}) raised:\n{told[1]}"
            return ProcessRaisedException(text, rank, pid)
        code = process.exitcode
        if code >= 0:
            text = f"rank {rank} (process {pid}) ended with exit code {code}"
            return ProcessExitedException(text, rank, pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        text = f"rank {rank} (process {pid}) was ended by {name}"
        return ProcessExitedException(text, rank, pid, code, name)


SpawnContext = ProcessContext


@overload
def spawn(
    fn: Callable[..., object],
    args: Iterable[Any] = ...,
    nprocs: int = ...,
    join: Literal[True] = ...,
    daemon: bool = ...,
    start_method: str = ...,
) -> None: ...


@overload
def spawn(
    fn: Callable[..., object],
    args: Iterable[Any] = ...,
    nprocs: int = ...,
    *,
    join: Literal[False],
    daemon: bool = ...,
    start_method: str = ...,
) -> ProcessContext: ...


def spawn(
    fn: Callable[..., object],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Starts `nprocs` processes, of which each calls `fn(rank, *args)`.

    `init_process_group()` needs no settings in them. With `join` it waits for all: if one fails,
    the others are ended, and this raises `ProcessRaisedException` or `ProcessExitedException`.
    Without, the context has `join`. If this process dies, the others end.

    `fn` must be found by its name in a module, as `pickle` does; only with the `start_method`
    "fork", which copies this process, may it be any function.
    """
    if nprocs < 1:
        raise ValueError(f"nprocs is {nprocs}: at least one process is expected")
    methods = _multiprocessing.get_context(start_method)
    store = _core.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arguments = tuple(args)
    processes: list[Any] = []
    failures: list[_connection.Connection] = []
    context = ProcessContext(processes, failures)
    try:
        for rank in range(nprocs):
            told, tell = methods.Pipe(duplex=False)
            variables = _variables(rank, nprocs, store.port)
            process: Any = getattr(methods, "Process")(
                target=_run, args=(fn, rank, arguments, variables, tell), daemon=daemon
            )
            process.start()
            tell.close()
            # It serves as long as there is a process, also where nobody keeps the context.
            process._store = store
            failures.append(told)
            processes.append(process)
        if not join:
            return context
        context.join()
    except BaseException:
        # Also where somebody interrupts it, or a later one cannot be started.
        context.stop()
        raise
    return None


#: The same; in PyTorch it is the one that has `start_method`.
start_processes = spawn


def _variables(rank: int, size: int, port: int) -> dict[str, str]:
    """What launchers set."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _run(
    fn: Callable[..., object],
    rank: int,
    arguments: tuple[Any, ...],
    variables: dict[str, str],
    tell: _connection.Connection,
) -> None:
    """What a process does."""
    os.environ.update(variables)
    threading.Thread(target=_end_with_parent, name="polyrank-parent", daemon=True).start()
    try:
        fn(rank, *arguments)
    except KeyboardInterrupt:
        # Whoever has started it was interrupted, too, and says so.
        sys.exit(128 + signal.SIGINT)
    except SystemExit:
        _tell(tell, "")
        raise
    except Exception:
        _tell(tell, traceback.format_exc())
        sys.exit(1)


def _tell(tell: _connection.Connection, text: str) -> None:
    """Says when it failed, and what it raised: the end of a long text, where the reason is."""
    raised = text.encode()[-_MAX_TEXT_BYTES:]
    tell.send_bytes(f"{time.monotonic_ns()}\n".encode() + raised)


def _end_with_parent() -> None:
    parent = _multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
