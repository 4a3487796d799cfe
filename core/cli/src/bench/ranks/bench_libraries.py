"""The libraries that ranks of `polyrank bench` in Python may run: polyrank, Gloo and those of MPI,
each by the same methods. Knows nothing of times or of the benchmark."""

import importlib
import sys
from datetime import timedelta

import numpy as np

#: Bytes of a cache line on most processors, from whose beginning offsets count.
LINE_BYTES = 64
#: Bytes of a window at least, so that all ranks of a host can map it.
MIN_WINDOW_BYTES = 64 << 10
#: Bytes of a huge page on most systems.
HUGE_PAGE_BYTES = 2 << 20


class Unsupported(Exception):
    """The library or NumPy cannot do this."""


class Polyrank:
    """The free functions of polyrank, over the default group."""

    def __init__(self, assignment):
        self.memory, self.call_style = assignment["memory"], assignment["call_style"]
        self.package, self.offset_bytes = assignment["library"], assignment["offset_bytes"]

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
            place = (LINE_BYTES, self.offset_bytes)
            return at_offset(elements, dtype, place, self.library.empty)
        return touched(elements, dtype, self.offset_bytes)

    def progress(self):
        """Nothing: the library makes progress by itself."""

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
        if name == "put":
            return self.putter(rank, into, out)
        return messages(self, name, rank, ranks, into, out)

    #: The window of the case, if it has one.
    window = None

    def putter(self, rank, into, out):
        """Writes to the window of rank 1; all copies of a case share it."""
        if self.window is None:
            elements = max(out.size, MIN_WINDOW_BYTES // out.itemsize)
            self.window_memory = self.library.empty(elements, out.dtype)
            self.window = self.library.default_group().new_window(self.window_memory)
        window = self.window
        return (lambda root: window.put(into, 1, 0)) if rank == 0 else lambda root: None

    def close_window(self):
        """Lets the window of the case go."""
        if self.window is not None:
            self.window.tensor_deregister()
            self.window = self.window_memory = None

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
        return touched(elements, dtype, self.offset_bytes)

    def hold(self, array):
        """A tensor of the same memory."""
        try:
            return self.torch.from_numpy(array)
        except TypeError as error:
            raise Unsupported(str(error)) from None

    def putter(self, rank, into, out):
        """There is nothing like it."""
        raise Unsupported("Gloo has no windows")

    def reduction(self, name):
        """The library's operator."""
        if name == "avg":
            raise Unsupported("Gloo has no average")
        return super().reduction(name)


class Mpi:
    """mpi4py with buffers of NumPy, on the communicator of all ranks."""

    def __init__(self, assignment):
        self.offset_bytes = assignment["offset_bytes"]

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
        return touched(elements, dtype, self.offset_bytes)

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
        if name == "put":
            return self.putter(rank, into, out)
        return messages(self, name, rank, ranks, into, out)

    #: The window of the case, if it has one.
    window = None

    def putter(self, rank, into, out):
        """Writes to the window of rank 1, of memory that the library gives for it, as it advises;
        all copies of a case share it."""
        if self.window is None:
            array = out[0]
            length = max(array.nbytes, MIN_WINDOW_BYTES)
            self.window = self.library.Win.Allocate(length, array.itemsize, comm=self.world)
            self.window_memory = np.frombuffer(self.window.tomemory(), array.dtype)
            self.window.Lock_all()
        window = self.window

        def put(root):
            window.Put(into, 1)
            window.Flush(1)

        return put if rank == 0 else lambda root: None

    def close_window(self):
        """Lets the window of the case go."""
        if self.window is not None:
            self.window_memory = None
            self.window.Unlock_all()
            self.window.Free()
            self.window = None

    def progress(self):
        """Lets the library do what it still has to for ranks that are at work: an MPI may need
        calls for that."""
        self.world.Iprobe()

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


def touched(elements, dtype, offset_bytes):
    """An array whose pages are there, as those of a program that has worked are.

    A long one begins where a huge page does (and so many bytes after that). Where NumPy puts an
    array is luck, and so is how much of it lies in huge pages: two libraries whose arrays differed
    in that differed by a fourth at 4 MiB."""
    is_long = elements * np.dtype(dtype).itemsize >= HUGE_PAGE_BYTES
    beginning = HUGE_PAGE_BYTES if is_long else LINE_BYTES
    array = at_offset(elements, dtype, (beginning, offset_bytes), np.empty)
    array.fill(0)
    return array


def at_offset(elements, dtype, place, make):
    """An array at a `place`, so many bytes after a multiple of a number of bytes, out of what
    `make` gives; that itself, if the beginning of any cache line is meant."""
    beginning, offset_bytes = place
    if elements == 0 or place == (LINE_BYTES, 0):
        return make(elements, dtype)
    length = elements * np.dtype(dtype).itemsize
    whole = make(length + offset_bytes + beginning, np.uint8)
    first = -whole.ctypes.data % beginning + offset_bytes
    return whole[first : first + length].view(dtype)


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
