"""The ranks of one library, which sleep until they are asked for a turn, and what they run then: an
operation whose result was checked beforehand, so and so often. Knows the libraries by the same few
methods; nothing of what is compared with what.

A rank is asked over a Unix socket: a path reaches network namespaces too, and whoever waits at it
takes no time from the others' turns, as a rank that polls within MPI would.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

OPERATIONS = ["allreduce", "allgather", "broadcast", "barrier"]

#: An operation to call with the number of the turn, and the arrays that are its inputs.
Prepared = namedtuple("Prepared", "once inputs")


def measure(jobs, operation, size, options):
    """Seconds of one operation, wall and CPU, for each turn of each job. `options.inputs` says
    whether inputs are rewritten before each call, as programs do, which is not timed."""
    rewritten = options.inputs == "rewritten"
    counts, results = {}, {}
    for name, job in jobs.items():
        job.run(operation, size, 2, rewritten)
        wall, _ = job.run(operation, size, 5, rewritten)
        counts[name] = max(1, min(5000, round(options.seconds / wall)))
        results[name] = []
    for turn in range(options.turns):
        # The second of one turn is the first of the next.
        for name in list(jobs)[:: 1 if turn % 2 else -1]:
            results[name].append(jobs[name].run(operation, size, counts[name], rewritten))
    return results


def add_turn_options(parser, turns, seconds):
    """Adds what `measure` reads."""
    parser.add_argument("--turns", type=int, default=turns, help="alternating turns of each job")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="aim for the time of a turn"
    )
    parser.add_argument(
        "--inputs",
        choices=["rewritten", "untouched"],
        default="rewritten",
        help="whether each rank writes its input anew before each call, outside of the timed part",
    )


class Job:
    """The ranks of one library."""

    def __init__(self, library, world, commands, environment=None):
        """Starts the ranks: all that `commands` start. Each command ends where the words of a rank
        begin: `ranks.py` and what [`rank_words`] gives."""
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
        path = os.path.join(self.folder.name, "control")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(world)
            listening.settimeout(1)
            environment = {**os.environ, **(environment or {}), "RANKS_CONTROL": path}
            self.processes = [subprocess.Popen(it, env=environment) for it in commands]
            self.ranks = [self.accept(listening, library) for _ in range(world)]

    def accept(self, listening, library):
        """The next rank that has joined its group."""
        while True:
            try:
                connection, _ = listening.accept()
                connection.setblocking(True)
                return connection.makefile("rw")
            except TimeoutError:
                if any(it.poll() is not None for it in self.processes):
                    self.end()
                    why = f"a rank of {library} ended early; its error is above"
                    raise SystemExit(why) from None

    def run(self, operation, size, count, rewritten):
        """Seconds of one operation of the slowest rank, and of CPU time of all ranks, in which
        rewriting counts."""
        for rank in self.ranks:
            rank.write(json.dumps([operation, size, count, rewritten]) + "\n")
            rank.flush()
        answers = [self.answer(rank) for rank in self.ranks]
        return max(wall for wall, _ in answers) / count, sum(cpu for _, cpu in answers) / count

    def answer(self, rank):
        """The next line of a rank."""
        line = rank.readline()
        if not line:
            raise SystemExit("a rank ended early; its error is above")
        return json.loads(line)

    def end(self):
        """Lets the ranks go, which end with their connections; kills those that do not."""
        for rank in getattr(self, "ranks", []):
            rank.close()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.folder.cleanup()


def local_job(library, world, environment=None):
    """A job of ranks that are processes of this host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [rank_words(library, rank, world, "127.0.0.1", port) for rank in range(world)]
    return Job(library, world, words, environment)


def rank_words(library, rank, world, host, port, python=sys.executable):
    """The command of one rank."""
    return [python, os.path.abspath(__file__), library, str(rank), str(world), host, str(port)]


def serve_rank(library, rank, world, host, port):
    """Runs what the parent asks for until it closes the connection."""
    adapter = ADAPTERS[library]()
    adapter.init(int(rank), int(world), host, int(port))
    rank, world = getattr(adapter, "rank", int(rank)), getattr(adapter, "world", int(world))
    control = socket.socket(socket.AF_UNIX)
    control.connect(os.environ["RANKS_CONTROL"])
    known = {}
    for line in (lines := control.makefile("rw")):
        operation, size, count, rewritten = json.loads(line)
        if (operation, size) not in known:
            known.clear()
            known[operation, size] = prepare(adapter, operation, size, rank, world)
        adapter.barrier()
        adapter.barrier()
        cpu = time.process_time()
        wall = run(known[operation, size], count, rewritten)
        cpu = time.process_time() - cpu
        # The others may still need this process.
        adapter.barrier()
        lines.write(json.dumps([wall, cpu]) + "\n")
        lines.flush()
    adapter.finalize()


def run(prepared, count, rewritten):
    """Seconds of so many calls, without those of rewriting."""
    once, inputs = prepared
    if not rewritten:
        start = time.perf_counter()
        for turn in range(count):
            once(turn)
        return time.perf_counter() - start
    wall = 0
    for turn in range(count):
        for array in inputs:
            array.fill(turn)
        start = time.perf_counter()
        once(turn)
        wall += time.perf_counter() - start
    return wall


def prepare(adapter, operation, size, rank, world):
    """An operation whose result was checked, and the inputs that a program writes before it."""
    import numpy

    elements = max(1, size // 4)
    tensor = numpy.full(elements, rank + 1, numpy.float32)
    handle = adapter.wrap(tensor)
    if operation == "allreduce":
        adapter.allreduce(handle)
        assert (tensor == world * (world + 1) / 2).all()
        tensor.fill(0)
        return Prepared(lambda _: adapter.allreduce(handle), [tensor])
    if operation == "broadcast":
        adapter.broadcast(handle, world - 1)
        assert (tensor == world).all()
        # The root rotates, so that no rank can run ahead of the others.
        return Prepared(lambda turn: adapter.broadcast(handle, turn % world), [tensor])
    if operation == "allgather":
        part = tensor[: max(1, elements // world)].copy()
        gathered = numpy.zeros(part.size * world, numpy.float32)
        whole, own = adapter.wrap(gathered), adapter.wrap(part)
        adapter.allgather(whole, own)
        assert (gathered == numpy.repeat(numpy.arange(1, world + 1), part.size)).all()
        return Prepared(lambda _: adapter.allgather(whole, own), [part])
    if operation == "barrier":
        return Prepared(lambda _: adapter.barrier(), [])
    if operation in PREPARE:
        return PREPARE[operation](adapter, elements, rank, world)
    known = ", ".join(OPERATIONS + list(PREPARE))
    raise SystemExit(f"'{operation}' is not an operation; expected one of {known}")


def prepare_alltoall(adapter, elements, rank, world):
    """Every rank gives each a part of its tensor."""
    import numpy

    part = max(1, elements // world)
    given = numpy.full(part * world, rank + 1, numpy.float32)
    taken = numpy.zeros_like(given)
    source, target = adapter.wrap(given), adapter.wrap(taken)
    adapter.all_to_all(target, source)
    assert (taken == numpy.repeat(numpy.arange(1, world + 1), part)).all()
    return Prepared(lambda _: adapter.all_to_all(target, source), [given])


def prepare_reduce_scatter(adapter, elements, rank, world):
    """Every rank gets a part of the sum."""
    import numpy

    part = max(1, elements // world)
    given = numpy.full(part * world, rank + 1, numpy.float32)
    taken = numpy.zeros(part, numpy.float32)
    source, target = adapter.wrap(given), adapter.wrap(taken)
    adapter.reduce_scatter(target, source)
    assert (taken == world * (world + 1) / 2).all()
    return Prepared(lambda _: adapter.reduce_scatter(target, source), [given])


def prepare_sendrecv(adapter, elements, rank, world):
    """A message from rank 0 to rank 1 and back; other ranks watch."""
    import numpy

    tensor = numpy.full(elements, rank + 1, numpy.float32)
    handle = adapter.wrap(tensor)

    def there_and_back(_):
        if rank == 0:
            adapter.send(handle, 1)
            adapter.recv(handle, 1)
        elif rank == 1:
            adapter.recv(handle, 0)
            adapter.send(handle, 0)

    there_and_back(0)
    assert rank > 1 or (tensor == 1).all()
    return Prepared(there_and_back, [tensor] if rank == 0 else [])


#: Further operations, and what prepares each.
PREPARE = {
    "alltoall": prepare_alltoall,
    "reduce_scatter": prepare_reduce_scatter,
    "sendrecv": prepare_sendrecv,
}


def polyrank():
    """Polyrank's adapter."""
    from adapter import Adapter

    return Adapter()


def gloo():
    """Gloo's adapter: the same free functions of `torch.distributed`."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    from torch import distributed

    class Gloo:
        """The methods of `adapter.Adapter` that are used here."""

        allreduce = staticmethod(distributed.all_reduce)
        broadcast = staticmethod(distributed.broadcast)
        allgather = staticmethod(distributed.all_gather_into_tensor)
        all_to_all = staticmethod(distributed.all_to_all_single)
        reduce_scatter = staticmethod(distributed.reduce_scatter_tensor)
        send = staticmethod(distributed.send)
        recv = staticmethod(distributed.recv)
        barrier = staticmethod(distributed.barrier)
        finalize = staticmethod(distributed.destroy_process_group)
        wrap = staticmethod(torch.from_numpy)

        def init(self, rank, world, host, port):
            """Joins the group."""
            torch.set_num_threads(1)
            distributed.init_process_group(
                "gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=world
            )

    return Gloo()

def openmpi():
    """Open MPI's adapter, or MPICH's: mpi4py is the same for both."""
    from mpi4py import MPI

    class Mpi:
        """The methods of `adapter.Adapter` that are used here."""

        def init(self, rank, world, host, port):
            """What starts the ranks has told them who they are."""
            self.group = MPI.COMM_WORLD
            self.rank, self.world = self.group.rank, self.group.size
            self.barrier, self.finalize = self.group.Barrier, MPI.Finalize

        def allreduce(self, tensor):
            self.group.Allreduce(MPI.IN_PLACE, tensor)

        def broadcast(self, tensor, root):
            self.group.Bcast(tensor, root)

        def allgather(self, whole, own):
            self.group.Allgather(own, whole)

        def all_to_all(self, target, source):
            self.group.Alltoall(source, target)

        def reduce_scatter(self, target, source):
            self.group.Reduce_scatter_block(source, target)

        def send(self, tensor, peer):
            self.group.Send(tensor, peer)

        def recv(self, tensor, peer):
            self.group.Recv(tensor, peer)

        wrap = staticmethod(lambda array: array)

    return Mpi()


ADAPTERS = {"polyrank": polyrank, "gloo": gloo, "openmpi": openmpi}

if __name__ == "__main__":
    serve_rank(*sys.argv[1:])
