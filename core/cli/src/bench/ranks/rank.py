"""A rank of `polyrank bench` in Python, whatever the library: joins the group, then does what it
is told until the benchmark closes the connection. Knows nothing of the other ranks' languages.

The values that go in and must come out are those of the benchmark's own ranks, see `pattern.rs`."""

import gc
import importlib
import json
import os
import socket
import sys
import time
from datetime import timedelta

import numpy as np

REDUCES = ("allreduce", "reduce", "reduce_scatter")


class Unsupported(Exception):
    """The library or NumPy cannot do this."""


class Polyrank:
    """The free functions of polyrank, over the default group."""

    def __init__(self, assignment):
        self.memory, self.call_style = assignment["memory"], assignment["call_style"]
        self.package = assignment["library"]

    def load(self):
        """Loads the package that is installed here, which may have brought this program along."""
        self.library = importlib.import_module(self.package)

    def join(self, rank, ranks, port, timeout_s):
        """Joins the group."""
        self.library.init_process_group(
            "tcp",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=ranks,
            timeout=timeout_s,
        )
        self.barrier = self.library.barrier
        return rank

    def versions(self):
        """What goes into the results besides times."""
        return {"polyrank": self.library.__version__, "python": sys.version.split()[0]}

    def leave(self):
        """Leaves the group."""
        self.library.destroy_process_group()

    def array(self, elements, dtype):
        """A new array, of zeros whose pages are there."""
        if self.memory == "polyrank":
            return self.library.empty(elements, dtype)
        return touched(elements, dtype)

    def hold(self, array):
        """What the calls take for an array of NumPy."""
        return array

    def reduction(self, name):
        """The library's operator."""
        return getattr(self.library.ReduceOp, name.upper())

    def call(self, case, rank, ranks, into, out, blocks):
        """The operation as a function of the root."""
        library, op = self.library, self.reduction(case["reduction"])
        name = case["operation"]
        if self.call_style == "prepared":
            if name != "allreduce" or case["form"] != "in_place":
                raise Unsupported("only an allreduce in place can be prepared")
            run = library.default_group().prepare_allreduce(out, op).run
            return lambda root: run()
        if name == "allreduce" and case["reduction"] == "sum":
            # The usual call, which names no operator.
            return lambda root: library.all_reduce(out)
        calls = {
            "allreduce": lambda root: library.all_reduce(out, op),
            "reduce": lambda root: library.reduce(out, root, op),
            "broadcast": lambda root: library.broadcast(out, root),
            "allgather": lambda root: library.all_gather_into_tensor(out, into),
            "gather": lambda root: library.gather(into, blocks if root == rank else None, root),
            "scatter": lambda root: library.scatter(out, blocks if root == rank else None, root),
            "reduce_scatter": lambda root: library.reduce_scatter_tensor(out, into, op),
            "alltoall": lambda root: library.all_to_all_single(out, into),
            "barrier": lambda root: library.barrier(),
        }
        if name in calls:
            return calls[name]
        return messages(self, name, rank, ranks, into, out)

    def send(self, tensor, to):
        """Sends, blocking."""
        self.library.send(tensor, to)

    def receive(self, tensor, sender):
        """Receives, blocking."""
        self.library.recv(tensor, sender)

    def exchange(self, into, to, out, sender):
        """Sends and receives at once."""
        work = self.library.isend(into, to)
        self.library.recv(out, sender)
        work.wait()


class Gloo(Polyrank):
    """`torch.distributed` has the same names."""

    def load(self):
        """Loads the library."""
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        self.torch, self.library = torch, distributed

    def join(self, rank, ranks, port, timeout_s):
        """Joins the group."""
        self.library.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout_s),
        )
        self.barrier = self.library.barrier
        return rank

    def versions(self):
        """What goes into the results besides times."""
        return {"torch": self.torch.__version__, "python": sys.version.split()[0]}

    def array(self, elements, dtype):
        """A new array."""
        return touched(elements, dtype)

    def hold(self, array):
        """A tensor of the same memory."""
        try:
            return self.torch.from_numpy(array)
        except TypeError as error:
            raise Unsupported(str(error)) from None

    def reduction(self, name):
        """The library's operator."""
        if name == "avg":
            raise Unsupported("Gloo has no average")
        return super().reduction(name)


class Mpi:
    """mpi4py with buffers of NumPy, on the communicator of all ranks."""

    def __init__(self, assignment):
        pass

    def load(self):
        """Loads the library, which would otherwise also join."""
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI

        self.mpi4py, self.library = mpi4py, MPI

    def join(self, rank, ranks, port, timeout_s):
        """Joins; MPI's launcher numbered the ranks."""
        self.library.Init_thread(self.library.THREAD_MULTIPLE)
        self.world = self.library.COMM_WORLD
        self.barrier = self.world.Barrier
        return self.world.Get_rank()

    def versions(self):
        """What goes into the results besides times."""
        library = self.library.Get_library_version().split("\n")[0].split(",")[0]
        python = sys.version.split()[0]
        return {"mpi": library.strip(), "mpi4py": self.mpi4py.__version__, "python": python}

    def leave(self):
        """Leaves."""
        self.library.Finalize()

    def array(self, elements, dtype):
        """A new array."""
        return touched(elements, dtype)

    def hold(self, array):
        """An array with its type, so that mpi4py need not look for it with every call."""
        if array.dtype == np.float16:
            raise Unsupported("MPI has no f16")
        return [array, self.library._typedict[array.dtype.char]]

    def reduction(self, name):
        """The library's operator."""
        names = {"product": "PROD"}
        if name == "avg":
            raise Unsupported("MPI has no average")
        return getattr(self.library, names.get(name, name.upper()))

    def call(self, case, rank, ranks, into, out, blocks):
        """The operation as a function of the root."""
        world, op = self.world, self.reduction(case["reduction"])
        name, in_place = case["operation"], self.library.IN_PLACE

        def reduce(root):
            world.Reduce(in_place if root == rank else out, out if root == rank else None, op, root)

        calls = {
            "allreduce": lambda root: world.Allreduce(in_place, out, op),
            "reduce": reduce,
            "broadcast": lambda root: world.Bcast(out, root),
            "allgather": lambda root: world.Allgather(into, out),
            "gather": lambda root: world.Gather(into, out if root == rank else None, root),
            "scatter": lambda root: world.Scatter(into if root == rank else None, out, root),
            "reduce_scatter": lambda root: world.Reduce_scatter_block(into, out, op),
            "alltoall": lambda root: world.Alltoall(into, out),
            "barrier": lambda root: world.Barrier(),
        }
        if name == "allreduce" and case["form"] == "out_of_place":
            return lambda root: world.Allreduce(into, out, op)
        if name in calls:
            return calls[name]
        return messages(self, name, rank, ranks, into, out)

    def send(self, tensor, to):
        """Sends, blocking."""
        self.world.Send(tensor, to)

    def receive(self, tensor, sender):
        """Receives, blocking."""
        self.world.Recv(tensor, sender)

    def exchange(self, into, to, out, sender):
        """Sends and receives at once."""
        self.world.Sendrecv(into, to, 0, out, sender)


LIBRARIES = {
    "polyrank": Polyrank,
    "gloo": Gloo,
    "openmpi": Mpi,
    "openmpi-tcp": Mpi,
    "mpich": Mpi,
}


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


def touched(elements, dtype):
    """An array whose pages are there, as those of a program that has worked are."""
    array = np.empty(elements, dtype)
    array.fill(0)
    return array


def messages(library, name, rank, ranks, into, out):
    """The operations that are messages between two ranks."""
    if name == "sendrecv":
        following, last = (rank + 1) % ranks, (rank - 1) % ranks
        return lambda root: library.exchange(into, following, out, last)

    def ping(root):
        library.send(into, 1)
        library.receive(out, 1)

    def pong(root):
        library.receive(out, 0)
        library.send(into, 0)

    return {0: ping, 1: pong}.get(rank, lambda root: None)


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

    def roots(self, iterations):
        """The roots of the next calls."""
        first, self.calls = self.calls, self.calls + iterations
        return [self.root(call) for call in range(first, first + iterations)]


NUMPY = {
    "u8": np.uint8,
    "i8": np.int8,
    "u16": np.uint16,
    "i16": np.int16,
    "u32": np.uint32,
    "i32": np.int32,
    "u64": np.uint64,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


def lengths(case, count, ranks):
    """Elements of the input and of the output."""
    whole = count * ranks
    return {
        "allreduce": (count if case["form"] == "out_of_place" else 0, count),
        "reduce": (0, count),
        "broadcast": (0, count),
        "allgather": (count, whole),
        "gather": (count, whole),
        "scatter": (whole, count),
        "reduce_scatter": (whole, count),
        "alltoall": (whole, whole),
        "barrier": (0, 0),
        "sendrecv": (count, count),
        "pingpong": (count, count),
    }[case["operation"]]


def values(case, ranks, rank, index):
    """What `rank` contributes as these elements of its input."""
    mixed = index * 31 + rank * 17 + index // 97
    if case["operation"] not in REDUCES:
        return mixed % 113
    if case["reduction"] == "sum":
        return mixed % min(max(127 // ranks, 2), 113)
    if case["reduction"] == "product":
        return 1 + ((index + rank) % max(ranks // 6 + 1, 7) == 0)
    if case["reduction"] == "avg":
        return index % max(100 // ranks, 1) + np.where(index % ranks == rank, ranks, 0)
    return mixed % 113


FOLDS = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def reduced(case, ranks, index):
    """What all ranks' elements reduce to."""
    result = values(case, ranks, 0, index)
    for rank in range(1, ranks):
        result = FOLDS[case["reduction"]](result, values(case, ranks, rank, index))
    return result // ranks if case["reduction"] == "avg" else result


def expected(case, ranks, rank, root, index):
    """What `rank` must find in its output; None where its output says nothing."""
    count = max(case["count"], 1)
    name, within = case["operation"], index % count
    own = rank * count + within
    if name == "allreduce":
        return reduced(case, ranks, index)
    if name == "reduce":
        return reduced(case, ranks, index) if rank == root else None
    if name == "broadcast":
        return values(case, ranks, root, index)
    if name == "allgather" or (name == "gather" and rank == root):
        return values(case, ranks, index // count, within)
    if name == "scatter":
        return values(case, ranks, root, own)
    if name == "reduce_scatter":
        return reduced(case, ranks, own)
    if name == "alltoall":
        return values(case, ranks, index // count, own)
    if name == "sendrecv":
        return values(case, ranks, (rank - 1) % ranks, index)
    return values(case, ranks, 1 - rank, index) if name == "pingpong" and rank < 2 else None


class Rank:
    """The connection to the benchmark."""

    def __init__(self, assignment):
        self.assignment, self.prepared, self.alone = assignment, None, None
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
        self.say("hello", rank=rank, token=assignment["token"])
        if assignment["joins_on_command"]:
            if not self.lines.readline():
                return
            library.join(rank, *joining)
            self.say("joined", **first_allreduce(library, ranks), versions=library.versions())
        else:
            library.join(rank, *joining)
            self.say("ready", versions=library.versions())
        for line in self.lines:
            self.execute(json.loads(line), library, rank)
        self.prepared = None
        library.leave()

    def execute(self, command, library, rank):
        """Does one command."""
        what = command.pop("do")
        if what == "prepare":
            # The buffers of the case before are no longer needed.
            self.prepared = None
            try:
                self.prepared = Prepared(library, command, rank, self.assignment["ranks"])
                self.say("prepared")
            except Unsupported as error:
                self.say("unsupported", why=str(error))
        elif what == "check":
            self.say("checked", wrong=self.prepared.check())
        elif what == "run":
            seconds, cpu_seconds = self.prepared.run(command["iterations"])
            self.say("ran", seconds=seconds, cpu_seconds=cpu_seconds)
        elif what == "memory":
            self.prepared = None
            now = memory_bytes()
            self.say("memory", bytes=None if now is None else max(now - self.alone, 0))
        else:
            self.say("each", seconds=self.prepared.each(command["iterations"]))


def main():
    """Serves, and says what went wrong."""
    rank = Rank(json.loads(os.environ["POLYRANK_BENCH"]))
    try:
        rank.serve()
    except Exception as error:
        rank.say("failed", why=f"{type(error).__name__}: {error}")
        raise


main()
