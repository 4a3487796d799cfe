"""A rank of `polyrank bench` in Python, whatever the library: joins the group, then does what it
is told until the benchmark closes the connection. Knows nothing of the other ranks' languages."""

import gc
import json
import os
import socket
import sys
import time

import numpy as np
from bench_libraries import LIBRARIES, Mpi, Unsupported
from bench_pattern import NUMPY, REDUCES, expected, expected_of_ones, lengths, values
from bench_start import CommonStart


def own_rank():
    """This rank, as the benchmark says it, or as the launcher of an MPI does."""
    if len(sys.argv) > 1:
        return int(sys.argv[1])
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
    return int(next(os.environ[name] for name in names if name in os.environ))


def first_allreduce(library, ranks):
    """Reduces once: when the rank was a member, and when that was over."""
    member_s = time.monotonic()
    array = np.ones(1, np.float32)
    case = {"operation": "allreduce", "form": "in_place", "reduction": "sum"}
    library.call(case, 0, ranks, None, library.hold(array), [])(0)
    reduced_s = time.monotonic()
    if array[0] != ranks:
        raise ValueError(f"the first allreduce is wrong: {array[0]} of {ranks} ranks")
    return {"member_s": member_s, "reduced_s": reduced_s}


def memory_bytes():
    """The memory of this process that is not a file's: its own pages, and of shared ones its part.
    None where the system does not say."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file.readlines()[1:])
        return sum(int(fields[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_Shmem"))
    except (OSError, KeyError):
        return None


class Prepared:
    """The buffers of one case and the calls on them."""

    def __init__(self, library, case, rank, ranks):
        self.case, self.rank, self.ranks, self.calls = case, rank, ranks, 0
        self.library = library
        dtype, count = NUMPY.get(case["dtype"]), case["count"]
        if dtype is None:
            raise Unsupported(f"NumPy has no {case['dtype']}")
        if case["operation"] in REDUCES:
            library.reduction(case["reduction"])
        inputs, outputs = lengths(case, count, ranks)
        self.input, self.output = library.array(inputs, dtype), library.array(outputs, dtype)
        listed = self.input if case["operation"] == "scatter" else self.output
        parts = listed.reshape(ranks, count) if case["operation"] in ("gather", "scatter") else []
        held = [library.hold(array) for array in (self.input, self.output)]
        blocks = [library.hold(part) for part in parts]
        call = library.call(case, rank, ranks, held[0], held[1], blocks)
        is_copied = case["form"] == "out_of_place" and case["operation"] == "allreduce"
        self.call = call
        if is_copied and not isinstance(library, Mpi):
            self.call = self.copy_then(call)

    def copy_then(self, call):
        """The call behind a copy of the input, where a library has no form that keeps it."""
        into, out = self.input, self.output

        def both(root):
            np.copyto(out, into)
            call(root)

        return both

    def check(self):
        """Calls once with known contents; how many elements of the result are wrong."""
        case, rank = self.case, self.rank
        root = self.root(self.calls)
        self.input[:] = values(case, self.ranks, rank, np.arange(self.input.size))
        self.output[:] = 120
        if case["form"] == "in_place":
            self.output[:] = values(case, self.ranks, rank, np.arange(self.output.size))
        self.call(root)
        self.calls += 1
        if case["operation"] == "put":
            self.library.barrier()
            self.output[:] = self.library.window_memory[: self.output.size]
        wanted = expected(case, self.ranks, rank, root, np.arange(self.output.size))
        wrong = 0 if wanted is None else int(np.count_nonzero(wanted != self.output))
        # Sums of nothing stay what they are, however often they are taken.
        self.input[:] = 0
        self.output[:] = 0
        self.library.barrier()
        return wrong

    def root(self, call):
        """The root of a call."""
        return call % self.ranks if self.case["root"] is None else self.case["root"]

    def meet(self):
        """Returns when every rank is about to start: the first barrier brings everybody here, the
        second lets them go together."""
        self.library.barrier()
        self.library.barrier()

    def run(self, iterations):
        """Calls so many times: seconds of the clock, and of the process."""
        call, roots, clock = self.call, self.roots(iterations), time.perf_counter
        self.meet()
        cpu, start = time.process_time(), clock()
        for root in roots:
            call(root)
        seconds = clock() - start
        cpu = time.process_time() - cpu
        self.library.barrier()
        return seconds, cpu

    def each(self, iterations):
        """Calls so many times: the seconds of each."""
        call, roots, clock = self.call, self.roots(iterations), time.perf_counter
        times = [0.0] * (iterations + 1)
        self.meet()
        times[0] = clock()
        for at, root in enumerate(roots, 1):
            call(root)
            times[at] = clock()
        self.library.barrier()
        return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]

    def source(self, root):
        """The array that the next call reads here; None if it reads nothing."""
        name = self.case["operation"]
        if name == "barrier" or (name in ("broadcast", "scatter") and root != self.rank):
            return None
        return self.output if self.case["form"] == "in_place" else self.input

    def write(self, call, value):
        """Writes what the call of this number reads here."""
        source = self.source(self.root(call))
        if source is not None:
            source.fill(value)

    def wrong_after_ones(self, call):
        """Elements of the output that are not what comes of ones, after the call of this number."""
        wanted = expected_of_ones(self.case, self.ranks, self.rank, self.root(call))
        return 0 if wanted is None else int(np.count_nonzero(self.output != wanted))

    def roots(self, iterations):
        """The roots of the next calls."""
        first, self.calls = self.calls, self.calls + iterations
        return [self.root(call) for call in range(first, first + iterations)]


class Bursts:
    """Bursts of calls whose inputs are written before: as the benchmark's own ranks make them, see
    `burst.rs`."""

    def __init__(self, iterations):
        self.burst_ns, self.late_ns = [0] * iterations, [0] * iterations
        self.write_ns, self.wrong = 0, 0

    def run(self, copies, lead_ns, start):
        """Runs the bursts, of one call for each of `copies`."""
        clock, iterations = time.monotonic_ns, len(self.burst_ns)
        first = 0
        for burst in range(iterations):
            first = burst * len(copies)
            begin = clock()
            # Zeros and ones in turn, so that a result of the burst before is seen; ones at last.
            for call, copy in enumerate(copies, first):
                copy.write(call, (iterations - burst) % 2)
            self.write_ns += clock() - begin
            calls = [(copy.call, copy.root(call)) for call, copy in enumerate(copies, first)]
            agreed, begun = start.wait(lead_ns)
            for call, root in calls:
                call(root)
            end = clock()
            self.burst_ns[burst] = end - agreed
            self.late_ns[burst] = begun - agreed
        wrong = [copy.wrong_after_ones(call) for call, copy in enumerate(copies, first)]
        self.wrong = sum(wrong)
        copies[0].library.barrier()

    def run_empty(self, lead_ns, start):
        """Starts without calls."""
        clock = time.monotonic_ns
        for burst in range(len(self.burst_ns)):
            agreed, begun = start.wait(lead_ns)
            end = clock()
            self.burst_ns[burst] = end - agreed
            self.late_ns[burst] = begun - agreed


class Rank:
    """The connection to the benchmark."""

    def __init__(self, assignment):
        self.assignment, self.copies, self.alone = assignment, [], None
        self.start = None
        host, _, port = assignment["control"].rpartition(":")
        stream = socket.create_connection((host, int(port)))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = stream.makefile("rw", encoding="utf-8", newline="\n")

    def say(self, kind, **fields):
        """Answers."""
        self.lines.write(json.dumps({"is": kind, **fields}) + "\n")
        self.lines.flush()

    def serve(self):
        """Runs what the benchmark asks for until it closes the connection."""
        assignment = self.assignment
        library = LIBRARIES[assignment["library"]](assignment)
        ranks = assignment["ranks"]
        joining = (ranks, assignment["port"], assignment["timeout_s"])
        library.load()
        # Takes milliseconds, which ranks that join at the same time would take from one another.
        gc.collect()
        gc.disable()
        self.alone = memory_bytes()
        rank = own_rank()
        if cores := assignment["pinned_cores"]:
            os.sched_setaffinity(0, {cores[rank % len(cores)]})
        self.say("hello", rank=rank, token=assignment["token"])
        if assignment["joins_on_command"]:
            if not self.lines.readline():
                return
            library.join(rank, *joining)
            self.say("joined", **first_allreduce(library, ranks), versions=library.versions())
        else:
            library.join(rank, *joining)
            self.start = CommonStart(assignment, rank, library.progress)
            self.say("ready", versions=library.versions())
        for line in self.lines:
            self.execute(json.loads(line), library, rank)
        self.copies = []
        library.close_window()
        library.leave()

    def execute(self, command, library, rank):
        """Does one command."""
        what = command.pop("do")
        if what == "prepare":
            # The buffers of the case before are no longer needed.
            self.copies = []
            library.close_window()
            try:
                ranks, copies = self.assignment["ranks"], range(command.pop("copies"))
                self.copies = [Prepared(library, command, rank, ranks) for _ in copies]
                self.say("prepared")
            except Unsupported as error:
                self.say("unsupported", why=str(error))
        elif what == "check":
            self.say("checked", wrong=self.copies[0].check())
        elif what == "run":
            seconds, cpu_seconds = self.copies[0].run(command["iterations"])
            self.say("ran", seconds=seconds, cpu_seconds=cpu_seconds)
        elif what in ("bursts", "empty"):
            bursts, lead_ns = Bursts(command["iterations"]), command["lead_ns"]
            if what == "empty":
                bursts.run_empty(lead_ns, self.start)
            else:
                bursts.run(self.copies, lead_ns, self.start)
            self.say(what, **vars(bursts))
        elif what == "memory":
            self.copies = []
            now = memory_bytes()
            self.say("memory", bytes=None if now is None else max(now - self.alone, 0))
        else:
            self.say("each", seconds=self.copies[0].each(command["iterations"]))


def main():
    """Serves, and says what went wrong."""
    rank = Rank(json.loads(os.environ["POLYRANK_BENCH"]))
    try:
        rank.serve()
    except Exception as error:
        rank.say("failed", why=f"{type(error).__name__}: {error}")
        raise


main()
