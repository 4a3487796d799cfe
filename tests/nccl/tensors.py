"""A rank with tensors of a library that is on a CUDA device, as far as DLPack can tell.

The driver is the double's, and so is the memory. Prints "ok RANK" when all is as it should be.
Knows nothing of how ranks are started.
"""

import ctypes
import os
import sys
import types
from pathlib import Path

import numpy as np
import polyrank as pr

# What is beside the conformance cases serves here, too.
sys.path.append(str(Path(__file__).parents[1] / "cases"))
from dlpack_export import CUDA, Managed, capsule  # noqa: E402

driver = ctypes.CDLL("libcuda.so")


class ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned, which can say that its memory is read-only."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        *Managed._fields_[:-2],
    ]


class OnDevice:
    """A float32 tensor on a device."""

    # What was exported is used until the device is done with it, which nobody here is told of.
    all = []

    def __init__(self, numbers, device, step=1):
        driver.cuCtxSetCurrent(ctypes.c_size_t(0xC000 + device))
        numbers = np.asarray(numbers, np.float32)
        self.address = ctypes.c_uint64()
        self.device, self.size, self.streams = device, numbers.size, []
        size = ctypes.c_size_t(numbers.nbytes)
        assert driver.cuMemAlloc_v2(ctypes.byref(self.address), size) == 0
        assert driver.cuMemcpyHtoD_v2(self.address, numbers.ctypes.data_as(ctypes.c_void_p),
                                      ctypes.c_size_t(numbers.nbytes)) == 0
        self.shape = (ctypes.c_int64 * 1)(self.size // step)
        self.strides = (ctypes.c_int64 * 1)(step)
        self.exported = []
        OnDevice.all.append(self)

    def __dlpack_device__(self):
        return (CUDA, self.device)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        head = (self.address.value, CUDA, self.device, 1)
        managed = Managed(*head, 2, 32, 1, self.shape, self.strides)
        self.exported.append(managed)
        return capsule(managed, b"dltensor")

    def numbers(self):
        """What is on the device after what was issued on the default stream."""
        driver.cuCtxSetCurrent(ctypes.c_size_t(0xC000 + self.device))
        into = np.empty(self.size, np.float32)
        assert driver.cuMemcpyDtoHAsync_v2(into.ctypes.data_as(ctypes.c_void_p), self.address,
                                           ctypes.c_size_t(into.nbytes), ctypes.c_size_t(0)) == 0
        return into.tolist()


class ReadOnly(OnDevice):
    """A tensor that nobody may write."""

    def __dlpack__(self, *, stream=None, max_version=None):
        head = (1, 1, None, None, 1, self.address.value, CUDA, self.device, 1)
        managed = ManagedVersioned(*head, 2, 32, 1, self.shape, self.strides)
        self.exported.append(managed)
        return capsule(managed, b"dltensor_versioned")


class OfLibrary(OnDevice):
    """A tensor of a library that has a current stream."""

    __module__ = "cupy.core"
    current = 0

    def __dlpack_device__(self):
        return (CUDA, self.device)


class WithBuffer(OfLibrary, bytearray):
    """As CuPy's arrays, which have buffers that are not their elements."""

    __module__ = "cupy.core"


def library():
    """What is asked for the current stream."""
    cuda = types.SimpleNamespace(
        get_current_stream=lambda index: types.SimpleNamespace(ptr=OfLibrary.current))
    sys.modules["cupy"] = types.ModuleType("cupy")
    sys.modules["cupy"].cuda = cuda


def new_stream():
    """A stream of the current device."""
    made = ctypes.c_size_t()
    assert driver.cuStreamCreate(ctypes.byref(made), 0) == 0
    return made.value


def is_idle(stream):
    """Whether all that was issued on a stream is over."""
    event = ctypes.c_size_t()
    assert driver.cuEventCreate(ctypes.byref(event), 0) == 0
    assert driver.cuEventRecord(event, ctypes.c_size_t(stream)) == 0
    return driver.cuEventQuery(event) == 0


def the_current_stream_waits(rank, size):
    """Waiting orders the stream that is current then, not the one of the call."""
    tensor = OfLibrary([1.0, rank], rank)
    store = pr.group.WORLD.get_group_store()
    called, waits = new_stream(), new_stream()
    if rank == 1:
        store.wait(["ordered"])
    OfLibrary.current = called
    work = pr.all_reduce(tensor, async_op=True)
    OfLibrary.current = waits
    work.wait()
    if rank == 0 and size > 1:
        driver.cuStreamSynchronize(ctypes.c_size_t(called))
        assert not is_idle(waits), "rank 1 has not come"
        store.set("ordered", "")
    assert driver.cuStreamSynchronize(ctypes.c_size_t(waits)) == 0
    assert tensor.numbers() == [size, size * (size - 1) / 2]


def who_only_reads_orders_the_current_stream_too(rank, size):
    """Not the root of a gather: it has no output, and the stream of the call is none of it."""
    tensor, before = OfLibrary([rank] * 3, rank), OfLibrary([rank], rank)
    store = pr.group.WORLD.get_group_store()
    earlier, called, waits = new_stream(), new_stream(), new_stream()
    if rank == 0:
        store.wait(["gathering"])
    # Nothing of the gather is begun before this is over, and rank 0 has not come to it.
    OfLibrary.current = earlier
    first = pr.all_reduce(before, async_op=True)
    OfLibrary.current = called
    parts = [OfLibrary([-1.0] * 3, rank) for _ in range(size)] if rank == 0 else None
    work = pr.gather(tensor, parts, async_op=True)
    OfLibrary.current = waits
    work.wait()
    if rank == 1:
        assert driver.cuStreamSynchronize(ctypes.c_size_t(called)) == 0
        assert not is_idle(waits), "rank 0 has not come"
        store.set("gathering", "")
    assert driver.cuStreamSynchronize(ctypes.c_size_t(waits)) == 0
    first.wait()
    if rank == 0:
        assert [part.numbers() for part in parts] == [[other] * 3 for other in range(size)]


def a_forked_child_is_told(rank):
    """What is the parent's must not be touched: the double would end the process."""
    tensor, world = OnDevice([1.0], rank), pr.group.WORLD
    work = pr.all_reduce(tensor, async_op=True)
    child = os.fork()
    if child == 0:
        for call in (world.allreduce, world.broadcast):
            try:
                call([tensor])
            except pr.InvalidGroupError as error:
                if "child" not in str(error):
                    os._exit(2)
            else:
                os._exit(3)
        if pr.is_nccl_available():
            os._exit(4)
        del work
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
    work.wait()


def main():
    """The exit code is 0 if all went well."""
    assert pr.is_nccl_available()
    pr.init_process_group("cpu:tcp,cuda:nccl", device_id=None)
    rank, size = pr.get_rank(), pr.get_world_size()

    tensor = OnDevice([rank, 1.0, 2.0], rank)
    work = pr.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor.numbers() == [size * (size - 1) / 2, size, 2.0 * size], tensor.numbers()
    assert tensor.streams == [1], "the legacy default stream, as DLPack names it"

    library()
    tensor = WithBuffer([rank, 1.0], rank)
    pr.all_reduce(tensor)
    assert tensor.numbers() == [size * (size - 1) / 2, size], tensor.numbers()

    on_host = np.full(3, 1.0, np.float32)
    pr.all_reduce(on_host)
    assert on_host.tolist() == [size] * 3

    parts = [OnDevice([-1.0] * 2, rank) for _ in range(size)]
    pr.all_gather(parts, OnDevice([rank, rank], rank))
    assert [part.numbers() for part in parts] == [[other, other] for other in range(size)]

    ours, theirs = OnDevice([rank] * 1000, rank), OnDevice([-1.0] * 1000, rank)
    after, before = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        messages = [pr.P2POp(pr.isend, ours, after), pr.P2POp(pr.irecv, theirs, before)]
        for work in pr.batch_isend_irecv(messages if rank % 2 else messages[::-1]):
            work.wait()
        assert theirs.numbers() == [before] * 1000

    try:
        pr.all_reduce(OnDevice([1.0] * 4, rank, step=2))
    except ValueError as error:
        assert "must be contiguous" in str(error), error
    else:
        raise AssertionError("a tensor with strides was taken")
    the_current_stream_waits(rank, size)
    if size > 1:
        who_only_reads_orders_the_current_stream_too(rank, size)
        refused = pr.P2POp(pr.irecv, ReadOnly([1.0], rank), before)
        try:
            pr.batch_isend_irecv([refused])
        except ValueError as error:
            assert "read-only" in str(error), error
        else:
            raise AssertionError("what is read-only was taken to receive")
    a_forked_child_is_told(rank)
    pr.barrier()
    pr.destroy_process_group()
    print("ok", rank, flush=True)


main()
