"""A rank with tensors of a library that is on a CUDA device, as far as DLPack can tell.

The driver is the double's, and so is the memory. Prints "ok RANK" when all is as it should be.
Knows nothing of how ranks are started.
"""

import ctypes

import numpy as np
import polyrank as pr

CUDA = 2
driver = ctypes.CDLL("libcuda.so")
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class OnDevice:
    """A float32 tensor on a device."""

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

    def __dlpack_device__(self):
        return (CUDA, self.device)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        head = (self.address.value, CUDA, self.device, 1)
        managed = Managed(*head, 2, 32, 1, self.shape, self.strides)
        # Lives as long as this object, which the caller of these tests keeps.
        self.exported.append(managed)
        return new_capsule(ctypes.addressof(managed), b"dltensor", None)

    def numbers(self):
        """What is on the device after what was issued on the default stream."""
        driver.cuCtxSetCurrent(ctypes.c_size_t(0xC000 + self.device))
        into = np.empty(self.size, np.float32)
        assert driver.cuMemcpyDtoHAsync_v2(into.ctypes.data_as(ctypes.c_void_p), self.address,
                                           ctypes.c_size_t(into.nbytes), ctypes.c_size_t(0)) == 0
        return into.tolist()


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
    pr.barrier()
    pr.destroy_process_group()
    print("ok", rank, flush=True)


main()
