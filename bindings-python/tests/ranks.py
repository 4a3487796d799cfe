"""Real processes as ranks: a pool of them runs one function after another.

Starting a process costs more than most tests, so a pool serves many. A test whose ranks die or
whose group breaks for good makes a pool, or a group, of its own.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection, wait

import polyrank

SPAWN = multiprocessing.get_context("spawn")
# Far beyond what any test takes: a hang ends with the stacks of all ranks, not with a stuck run.
PATIENCE_S = 60.0
TIMEOUT_S = 30.0


class Here:
    """What a function that runs on a rank gets: its place, its group, a store that all share."""

    def __init__(self, rank: int, size: int, port: int) -> None:
        self.rank = rank
        self.size = size
        self.store = polyrank.TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT_S)
        self.group = self.make_group("pool")

    def make_group(self, name: str, timeout: float = TIMEOUT_S) -> "polyrank.ProcessGroup":
        """A group of all ranks of the pool under a name that was not used before."""
        store = polyrank.PrefixStore(name, self.store)
        return polyrank.ProcessGroup(
            store, self.rank, self.size, timeout=timeout, group_name=name
        )


class RankError(AssertionError):
    """A function raised on some ranks; the message has their tracebacks."""


class Pool:
    """So many ranks, until `close`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.store = polyrank.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT_S
        )
        self.processes = []
        self.connections: list[Connection] = []
        for rank in range(size):
            here, there = SPAWN.Pipe()
            arguments = (rank, size, self.store.port, there)
            process = SPAWN.Process(target=serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self.processes.append(process)
            self.connections.append(here)
        self.collect(range(size))

    def run(self, function, *arguments, ranks=None):
        """Calls `function(here, *arguments)` on all ranks; their results, by rank."""
        ranks = range(self.size) if ranks is None else ranks
        for rank in ranks:
            self.connections[rank].send((function, arguments))
        return self.collect(ranks)

    def collect(self, ranks):
        """The results of `ranks`; raises if one of them raised, died, or takes too long."""
        pending = {self.connections[rank]: rank for rank in ranks}
        results, failures = {}, []
        deadline = time.monotonic() + PATIENCE_S
        while pending:
            ready = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                self.show_stacks(pending.values())
                self.close(kill=True)
                raise RankError(f"ranks {sorted(pending.values())} hang; stacks are on stderr")
            for connection in ready:
                rank = pending.pop(connection)
                try:
                    ok, value = connection.recv()
                except EOFError:
                    ok, value = False, "the process died"
                if ok:
                    results[rank] = value
                else:
                    failures.append(f"--- rank {rank} of {self.size}: {value}")
        if failures:
            raise RankError("\n".join(failures))
        return [results[rank] for rank in ranks]

    def show_stacks(self, ranks) -> None:
        for rank in ranks:
            print(f"--- stack of rank {rank}", file=sys.stderr, flush=True)
            os.kill(self.processes[rank].pid, signal.SIGUSR1)
            time.sleep(0.2)  # Only so that the stacks do not mix.

    def close(self, kill: bool = False) -> None:
        for connection, process in zip(self.connections, self.processes):
            if kill:
                process.kill()
            else:
                try:
                    connection.send(None)
                except OSError:
                    pass
        for process in self.processes:
            process.join(PATIENCE_S)


def serve(rank: int, size: int, port: int, connection: Connection) -> None:
    """A rank: joins the group, then runs what it is sent."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    here = None
    call = (Here, (size, port))
    while call is not None:
        function, arguments = call
        try:
            if here is None:
                here, value = Here(rank, *arguments), None
            else:
                value = function(here, *arguments)
            connection.send((True, value))
        except BaseException:
            connection.send((False, traceback.format_exc()))
        try:
            call = connection.recv()
        except EOFError:
            call = None
