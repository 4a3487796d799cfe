"""What an allreduce costs over NCCL: the library called directly, polyrank, and PyTorch.

Run under `polyrank run -n RANKS -- python tests/bench/nccl_overhead.py`. All three use the same
library and one device a rank. "call" is the host's time of a call that nobody waits for, of a
hundred in a row; "whole" is the time from the call until the device is done. Medians of turns in
which the three alternate; microseconds. Where there are more ranks than devices, each sets
NCCL_HOSTID to something of its own.
"""

import ctypes
import os
import statistics
import time

import polyrank as pr
import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
FLOAT, SUM = 7, 0


class Id(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


class Raw:
    """NCCL through ctypes, on a stream of its own."""

    def __init__(self):
        self.nccl = ctypes.CDLL("libnccl.so.2")
        unique, self.comm = Id(), ctypes.c_void_p()
        if RANK == 0:
            assert self.nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        box = [bytes(unique)]
        pr.broadcast_object_list(box, 0)
        ctypes.memmove(ctypes.byref(unique), box[0], 128)
        assert self.nccl.ncclCommInitRank(ctypes.byref(self.comm), SIZE, unique, RANK) == 0
        self.stream = torch.cuda.Stream(DEVICE)
        self.raw = ctypes.c_void_p(self.stream.cuda_stream)

    def __call__(self, tensor):
        at = ctypes.c_void_p(tensor.data_ptr())
        count = ctypes.c_size_t(tensor.numel())
        assert self.nccl.ncclAllReduce(at, at, count, FLOAT, SUM, self.comm, self.raw) == 0

    def wait(self, _):
        """The current stream comes after it."""
        torch.cuda.current_stream().wait_stream(self.stream)


class Library:
    """A library with the calls of torch.distributed."""

    def __init__(self, library):
        self.library = library

    def __call__(self, tensor):
        return self.library.all_reduce(tensor, async_op=True)

    def wait(self, work):
        """The current stream comes after it."""
        work.wait()


def calls(contender, tensor, count=100):
    """Microseconds a call."""
    torch.cuda.synchronize()
    pr.barrier()
    start = time.perf_counter()
    works = [contender(tensor) for _ in range(count)]
    spent = time.perf_counter() - start
    contender.wait(works[-1])
    torch.cuda.synchronize()
    return spent / count * 1e6


def whole(contender, tensor, count=20):
    """Microseconds from the call to the end on the device."""
    spent = []
    for _ in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        contender.wait(contender(tensor))
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e6


def main():
    """Prints a table on rank 0."""
    torch.cuda.set_device(DEVICE)
    pr.init_process_group("cpu:tcp,cuda:nccl", device_id=DEVICE.index)
    meeting = [f"/tmp/nccl_overhead_{os.getpid()}"]
    pr.broadcast_object_list(meeting, 0)
    dist.init_process_group("nccl", init_method=f"file://{meeting[0]}", rank=RANK,
                            world_size=SIZE, device_id=DEVICE)
    contenders = {"raw": Raw(), "polyrank": Library(pr), "torch": Library(dist)}
    names = list(contenders)
    if RANK == 0:
        print(f"{torch.cuda.get_device_name()}, NCCL {torch.cuda.nccl.version()}, {SIZE} ranks, "
              f"torch {torch.__version__}")
        print(f"{'bytes':>10}  " + "".join(f"{'call ' + name:>15}" for name in names)
              + "".join(f"{'whole ' + name:>15}" for name in names))
    turns, sizes = int(os.environ.get("TURNS", "15")), [4, 1024, 65_536, 2**20, 2**24]
    for size in sizes:
        tensor = torch.ones(size // 4, device=DEVICE)
        got = {(kind, name): [] for kind in (calls, whole) for name in names}
        for turn in range(turns + 2):
            for name in names if turn % 2 else names[::-1]:
                for kind in (calls, whole):
                    spent = kind(contenders[name], tensor)
                    if turn >= 2:
                        got[kind, name].append(spent)
        if RANK == 0:
            print(f"{size:>10}  " + "".join(f"{statistics.median(got[kind, name]):>15.2f}"
                                            for kind in (calls, whole) for name in names),
                  flush=True)
    dist.destroy_process_group()
    pr.destroy_process_group()


main()
