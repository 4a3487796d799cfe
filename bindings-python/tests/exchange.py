"""A producer that has DLPack's C exchange table, as PyTorch has, written with ctypes."""

import ctypes as c


class Version(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32)]


class Device(c.Structure):
    _fields_ = [("kind", c.c_int32), ("index", c.c_int32)]


class ElementType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class View(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", Device),
        ("dimensions", c.c_int32),
        ("element_type", ElementType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class Managed(c.Structure):
    pass


Deleter = c.CFUNCTYPE(None, c.POINTER(Managed))
Managed._fields_ = [
    ("version", Version),
    ("producer", c.c_void_p),
    ("deleter", Deleter),
    ("flags", c.c_uint64),
    ("view", View),
]
FromObject = c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(c.POINTER(Managed)))


class Table(c.Structure):
    _fields_ = [
        ("version", Version),
        ("previous", c.c_void_p),
        ("allocate", c.c_void_p),
        ("managed_from_object", FromObject),
        ("managed_to_object", c.c_void_p),
        ("view_from_object", c.c_void_p),
        ("current_stream", c.c_void_p),
    ]


@Deleter
def give_back(managed):
    Exchanged.live.pop(c.addressof(managed.contents))


@FromObject
def export(tensor, out):
    if tensor.fails:
        return -1
    array = tensor.array
    shape = (c.c_int64 * max(array.ndim, 1))(*array.shape)
    bits = array.itemsize * 8
    # The pointer lies before the data, and the offset makes up for it; no strides: contiguous.
    view = View(
        array.ctypes.data - 16,
        Device(tensor.device, 1),
        array.ndim,
        ElementType(tensor.code, bits, 1),
        shape,
        None,
        16,
    )
    managed = Managed(Version(tensor.major, 1), None, give_back, tensor.flags, view)
    Exchanged.live[c.addressof(managed)] = (managed, shape, array)
    out[0] = c.pointer(managed)
    return 0


# The capsule points to its name, which must live as long.
NAME = b"dlpack_exchange_api"
TABLE = Table(Version(1, 3), None, None, export, None, None, None)
make_capsule = c.pythonapi.PyCapsule_New
make_capsule.restype = c.py_object
make_capsule.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]


class Exchanged:
    """A contiguous NumPy array behind the table; the DLPack type code is `code`."""

    __dlpack_c_exchange_api__ = make_capsule(c.addressof(TABLE), NAME, None)
    live: dict = {}

    def __init__(self, array, code=2, flags=0, device=1, major=1, fails=False):
        self.array = array
        self.code = code
        self.flags = flags
        self.device = device
        self.major = major
        self.fails = fails
