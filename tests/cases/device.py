"""Where the tensors of a case lie on a CUDA device, for groups with NCCL.

They come by DLPack, as those of PyTorch and CuPy do; the driver is asked through ctypes. Knows
nothing of how a case is read.
"""

import ctypes

import ml_dtypes
import numpy as np
from dlpack_export import CUDA, Managed, capsule

# DLPack's codes of kinds of elements, by NumPy's.
KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
BFLOAT = 4
# What NCCL does not reduce.
TYPES = {"u16", "i16"}
OPERATORS = {"BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR"}
# Those of them that it has of truth values.
OF_BOOL = {"BAND", "BOR"}
ROUNDED = {"f16", "bf16", "f32", "f64", "complex64", "complex128"}


class DeviceTensor:
    """A copy of a NumPy array on a device."""

    # What was exported is looked at until nothing uses it, which nobody here is told of.
    exported = []

    def __init__(self, driver, array, device):
        self.driver, self.device, self.itemsize = driver, device, array.itemsize
        is_bfloat = array.dtype == ml_dtypes.bfloat16
        self.code = BFLOAT if is_bfloat else KINDS[array.dtype.kind]
        self.shape = (ctypes.c_int64 * 1)(array.size)
        self.address, self.bytes = ctypes.c_uint64(), ctypes.c_size_t(array.nbytes)
        size = ctypes.c_size_t(max(array.nbytes, 1))
        assert driver.cuMemAlloc_v2(ctypes.byref(self.address), size) == 0
        data = np.ascontiguousarray(array).ctypes
        assert driver.cuMemcpyHtoD_v2(self.address, data.data_as(ctypes.c_void_p), self.bytes) == 0

    def __dlpack_device__(self):
        return (CUDA, self.device)

    def __dlpack__(self, *, stream=None, max_version=None):
        managed = Managed(self.address.value, CUDA, self.device, 1, self.code,
                          self.itemsize * 8, 1, self.shape, None)
        DeviceTensor.exported.append((self.shape, managed))
        return capsule(managed, b"dltensor")

    def move_to(self, memory):
        """Copies the elements to `memory`, after what was issued on the default stream, and frees
        them."""
        default = ctypes.c_size_t(0)
        into = (ctypes.c_char * len(memory)).from_buffer(memory)
        assert self.driver.cuMemcpyDtoHAsync_v2(into, self.address, self.bytes, default) == 0
        assert self.driver.cuStreamSynchronize(default) == 0
        assert self.driver.cuMemFree_v2(self.address) == 0


class OnDevice:
    """The memory of one device, for the tensors of cases."""

    def __init__(self, index):
        self.index = index
        self.driver = ctypes.CDLL("libcuda.so")
        context = ctypes.c_size_t()
        assert self.driver.cuInit(0) == 0
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), index) == 0
        assert self.driver.cuCtxSetCurrent(context) == 0

    @staticmethod
    def named(name, rank):
        """The device of a rank: `cuda` is that with the rank's number, `cuda:0` the first for all;
        None without a name."""
        kind, _, index = (name or "").partition(":")
        return OnDevice(int(index or rank)) if kind == "cuda" else None

    def takes(self, case):
        """Whether a case can be run: with strides, ranks with a block of one element have no reason
        to refuse what the others refuse; and NCCL has each rank divide for an average, which is not
        exact unless the world is a power of two."""
        is_rounded = case.facts["reduces"] and case.op == "AVG" and case.dtype in ROUNDED
        return not case.strided and not (is_rounded and case.world & (case.world - 1))

    def refuses(self, case):
        """Whether the call must be refused, on all ranks."""
        if not case.facts["reduces"]:
            return False
        if case.form["collective"] in ("scan", "exscan"):
            return True  # NCCL has none
        if case.dtype == "bool":
            return case.op in OPERATORS - OF_BOOL
        return case.dtype in TYPES or case.op in OPERATORS

    def put(self, operations):
        """Puts the tensors of a call on the device."""
        for slot in slots_of(operations):
            slot.tensor = DeviceTensor(self.driver, slot.tensor, self.index)

    def get(self, operations):
        """Brings back what is in them."""
        for slot in slots_of(operations):
            slot.tensor.move_to(slot.memory)


def slots_of(operations):
    """The slots of all roles."""
    return [slot for slots in operations for those in slots.values() for slot in those]
