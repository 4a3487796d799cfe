"""Compares polyrank with PyTorch's Gloo backend, Python to Python, on this host: both jobs stand at
the same time, and their turns alternate, so that other load on the machine meets both alike. Knows
nothing of either library's inside. Torch has to be installed beforehand.

    python tests/bench/compare.py --worlds 2,4
    python tests/bench/compare.py --against old=/path/to/another/build   # two builds of polyrank
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

OPERATIONS = ["allreduce", "allgather", "broadcast"]
SIZES = [4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def main():
    """Parses the command line; the same file serves as the program of a rank."""
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        return serve_rank(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--worlds", default="2,4", help="numbers of ranks")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of the tensor")
    parser.add_argument("--turns", type=int, default=11, help="alternating turns of each job")
    parser.add_argument("--seconds", type=float, default=0.05, help="aim for the time of a turn")
    parser.add_argument(
        "--against", help="NAME=PYTHONPATH of another polyrank, in place of Gloo"
    )
    options = parser.parse_args()
    name, _, path = (options.against or "gloo=").partition("=")
    peers = {name: path, "polyrank": os.environ.get("PYTHONPATH", "")}
    print(f"median µs of {options.turns} alternating turns; ratio: median of polyrank / {name};")
    print("CPU: µs of user and system time of all ranks for one operation\n")
    for world in map(int, options.worlds.split(",")):
        jobs = {peer: Job(peer, path, world) for peer, path in peers.items()}
        try:
            for operation in options.operations.split(","):
                print_header(operation, world, list(peers))
                for size in map(int, options.sizes.split(",")):
                    print_row(size, list(peers), measure(jobs, operation, size, options))
        finally:
            for job in jobs.values():
                job.end()


def print_header(operation, world, names):
    """Opens a table."""
    first, second = names
    print(f"\n### {operation}, {world} ranks\n")
    print(f"| bytes | {first} | {second} | ratio | CPU {first} | CPU {second} |")
    print("|---|---|---|---|---|---|", flush=True)


def print_row(size, names, results):
    """Prints one row of a table."""
    walls = [statistics.median(wall for wall, _ in results[name]) for name in names]
    times = [statistics.median(cpu for _, cpu in results[name]) for name in names]
    cells = [f"{value * 1e6:.1f}" for value in walls] + [f"{walls[1] / walls[0]:.2f}"]
    cells += [f"{value * 1e6:.1f}" for value in times]
    print(f"| {size} | {' | '.join(cells)} |", flush=True)


def measure(jobs, operation, size, options):
    """Seconds of one operation, wall and CPU, for each turn of each job."""
    counts, results = {}, {}
    for name, job in jobs.items():
        job.run(operation, size, 2)
        wall, _ = job.run(operation, size, 5)
        counts[name] = max(1, min(5000, round(options.seconds / wall)))
        results[name] = []
    for turn in range(options.turns):
        # The second of one turn is the first of the next.
        for name in list(jobs)[:: 1 if turn % 2 else -1]:
            results[name].append(jobs[name].run(operation, size, counts[name]))
    return results


class Job:
    """The ranks of one library."""

    def __init__(self, name, path, world):
        library = "gloo" if name == "gloo" else "polyrank"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, "PYTHONPATH": path}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", library, str(rank), str(world), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for rank in range(world)
        ]
        for rank in self.ranks:
            self.answer(rank)

    def answer(self, rank):
        """The next line of a rank."""
        line = rank.stdout.readline()
        if not line:
            raise SystemExit("a rank ended early; its error is above")
        return json.loads(line)

    def run(self, operation, size, count):
        """Seconds of one operation of the slowest rank, and of CPU time of all ranks."""
        for rank in self.ranks:
            rank.stdin.write(json.dumps([operation, size, count]) + "\n")
            rank.stdin.flush()
        answers = [self.answer(rank) for rank in self.ranks]
        return max(wall for wall, _ in answers) / count, sum(cpu for _, cpu in answers) / count

    def end(self):
        """Lets the ranks go."""
        end_ranks(self.ranks)


def end_ranks(ranks):
    """Lets processes go that end with their standard input; kills those that do not."""
    for rank in ranks:
        rank.stdin.close()
    for rank in ranks:
        try:
            rank.wait(timeout=20)
        except subprocess.TimeoutExpired:
            rank.kill()


def serve_rank(library, rank, world, port):
    """Runs what the parent asks for until it closes the pipe."""
    rank, world = int(rank), int(world)
    adapter = gloo() if library == "gloo" else polyrank()
    adapter.init(rank, world, "127.0.0.1", int(port))
    print("true", flush=True)
    known = {}
    for line in sys.stdin:
        operation, size, count = json.loads(line)
        if (operation, size) not in known:
            known.clear()
            known[operation, size] = prepare(adapter, operation, size, rank, world)
        run = known[operation, size]
        adapter.barrier()
        adapter.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        run(count)
        wall = time.perf_counter() - start
        # The others may still need this process.
        adapter.barrier()
        print(json.dumps([wall, time.process_time() - cpu]), flush=True)
    adapter.finalize()


def prepare(adapter, operation, size, rank, world):
    """The loop over an operation, after one whose result is checked."""
    import numpy

    elements = max(1, size // 4)
    tensor = numpy.full(elements, rank + 1, numpy.float32)
    handle = adapter.wrap(tensor)
    if operation == "allreduce":
        adapter.allreduce(handle)
        assert (tensor == world * (world + 1) / 2).all()
        tensor.fill(0)
        return repeated(lambda _: adapter.allreduce(handle))
    if operation == "broadcast":
        adapter.broadcast(handle, world - 1)
        assert (tensor == world).all()
        # The root rotates, so that no rank can run ahead of the others.
        return repeated(lambda turn: adapter.broadcast(handle, turn % world))
    if operation == "allgather":
        part = tensor[: max(1, elements // world)].copy()
        gathered = numpy.zeros(part.size * world, numpy.float32)
        whole, own = adapter.wrap(gathered), adapter.wrap(part)
        adapter.allgather(whole, own)
        assert (gathered == numpy.repeat(numpy.arange(1, world + 1), part.size)).all()
        return repeated(lambda _: adapter.allgather(whole, own))
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
    return repeated(lambda _: adapter.all_to_all(target, source))


def prepare_reduce_scatter(adapter, elements, rank, world):
    """Every rank gets a part of the sum."""
    import numpy

    part = max(1, elements // world)
    given = numpy.full(part * world, rank + 1, numpy.float32)
    taken = numpy.zeros(part, numpy.float32)
    source, target = adapter.wrap(given), adapter.wrap(taken)
    adapter.reduce_scatter(target, source)
    assert (taken == world * (world + 1) / 2).all()
    return repeated(lambda _: adapter.reduce_scatter(target, source))


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
    return repeated(there_and_back)


#: Further operations: what prepares the loop over each.
PREPARE = {
    "alltoall": prepare_alltoall,
    "reduce_scatter": prepare_reduce_scatter,
    "sendrecv": prepare_sendrecv,
}


def repeated(once):
    """A function that calls `once` so many times."""

    def run(count):
        for turn in range(count):
            once(turn)

    return run


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


if __name__ == "__main__":
    main()
