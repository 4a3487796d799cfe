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

_MAX_TEXT_BYTES = 32_768
"""Of what a process raised; less than a pipe takes without a reader."""


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
        self, processes: list[Any], failures: list[_connection.Connection], store: _core.TCPStore
    ) -> None:
        #: In the order of their ranks.
        self.processes = processes
        self._failures = failures
        # It serves as long as this is there.
        self._store = store
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
            left = None if until is None else max(0.0, until - time.monotonic())
            if not _connection.wait(self._sentinels(), left):
                return False
            failed = self._newly_failed()
            if failed:
                self.stop(_GRACE_S if grace_period is None else grace_period)
                raise self._failure(failed[0])
        return True

    def stop(self, grace_period: float = _GRACE_S) -> None:
        """Ends all that still run: SIGTERM, and `grace_period` seconds later SIGKILL."""
        for process in self.processes:
            process.terminate()
        until = time.monotonic() + grace_period
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
        for process in self.processes:
            process.kill()
            process.join()
        self._ended.update(range(len(self.processes)))

    def _sentinels(self) -> list[int]:
        """What becomes readable when one of those ends that run."""
        ended = self._ended
        return [it.sentinel for rank, it in enumerate(self.processes) if rank not in ended]

    def _newly_failed(self) -> list[int]:
        """Those that have failed since it was last asked. Others may have raised as they were left
        alone: first are those that a signal has ended.
        """
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        ended = {rank: code for rank, code in codes.items() if code is not None}
        failed = [rank for rank, code in ended.items() if code != 0 and rank not in self._ended]
        self._ended.update(ended)
        return sorted(failed, key=lambda rank: (ended[rank] >= 0, rank))

    def _failure(self, rank: int) -> ProcessException:
        """Why this one failed."""
        process, pid = self.processes[rank], self.processes[rank].pid
        try:
            # A closed pipe can be read, too, and has nothing.
            raised = self._failures[rank].recv_bytes(_MAX_TEXT_BYTES)
        except (EOFError, OSError):
            pass
        else:
            text = raised.decode(errors="replace")
            return ProcessRaisedException(f"rank {rank} (process {pid}) raised:\n{text}", rank, pid)
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
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def start_processes(
    fn: Callable[..., object],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """As `spawn`."""
    if nprocs < 1:
        raise ValueError(f"nprocs is {nprocs}: at least one process is expected")
    methods = _multiprocessing.get_context(start_method)
    store = _core.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arguments = tuple(args)
    processes: list[Any] = []
    failures: list[_connection.Connection] = []
    context = ProcessContext(processes, failures, store)
    try:
        for rank in range(nprocs):
            told, tell = methods.Pipe(duplex=False)
            variables = _variables(rank, nprocs, store.port)
            process: Any = getattr(methods, "Process")(
                target=_run, args=(fn, rank, arguments, variables, tell), daemon=daemon
            )
            process.start()
            tell.close()
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
    except Exception:
        text = traceback.format_exc().encode()
        tell.send_bytes(text[-_MAX_TEXT_BYTES:])
        sys.exit(1)


def _end_with_parent() -> None:
    parent = _multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
