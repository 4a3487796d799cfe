"""What Python values are tensors, in place, and which are refused. One rank is enough for that."""

import array
import ctypes
import gc
import mmap
import sys

import ml_dtypes
import numpy as np
import pytest

import polyrank
from exchange import Exchanged

FACTOR = 3.0


@pytest.fixture(scope="module")
def group():
    return polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, timeout=20, group_name="alone")


def triple(group, tensor):
    """Changes floating-point elements in place: one rank's elements times the factor."""
    group.allreduce(tensor, polyrank.premul_sum(FACTOR)).wait()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_numpy_arrays_change_in_place(group, dtype):
    tensor = np.arange(6).astype(dtype).reshape(2, 3)
    address = tensor.ctypes.data
    triple(group, tensor)
    assert tensor.ctypes.data == address
    assert (tensor == np.arange(6).reshape(2, 3) * FACTOR).all()


def test_bfloat16_arrays_change_in_place(group):
    tensor = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    triple(group, tensor)
    triple(group, tensor.T)
    assert (tensor.astype(float) == np.arange(6).reshape(2, 3) * FACTOR**2).all()


def test_strides_of_any_sign(group):
    base = np.arange(24.0).reshape(2, 3, 4)
    expected = base.copy()
    for select in (
        lambda a: a[::-1],
        lambda a: a[:, ::-1, ::2],
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[1, 2, ::-3],
        lambda a: a[:, 1:1],
        lambda a: a[1, 1, 1:2].reshape(()),
    ):
        triple(group, select(base))
        view = select(expected)
        view *= FACTOR
        np.testing.assert_array_equal(base, expected)


def test_scalars_and_empty_arrays(group):
    scalar = np.array(2.0)
    triple(group, scalar)
    assert scalar == 6.0
    triple(group, np.zeros((0, 3)))
    triple(group, np.zeros((3, 0))[::-1])


def test_other_buffers(group):
    numbers = array.array("d", [1.0, 2.0])
    triple(group, numbers)
    assert numbers.tolist() == [3.0, 6.0]
    c_numbers = (ctypes.c_float * 3)(1.0, 2.0, 3.0)
    triple(group, c_numbers)
    assert list(c_numbers) == [3.0, 6.0, 9.0]
    matrix = ((ctypes.c_double * 2) * 2)((1.0, 2.0), (3.0, 4.0))
    triple(group, matrix)
    assert matrix[1][1] == 12.0
    view = memoryview(bytearray(np.ones(2).tobytes())).cast("d")
    triple(group, view)
    assert view.tolist() == [3.0, 3.0]
    with mmap.mmap(-1, 4096) as memory:
        whole = np.frombuffer(memory, np.float64)
        whole[:] = 1.0
        triple(group, whole)
        assert (whole == 3.0).all()
        del whole
        gc.collect()


class Modern:
    """A producer of versioned capsules that has no buffer protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)


class Old:
    """A producer of before DLPack 1.0."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()


@pytest.mark.parametrize("producer", [Modern, Old])
def test_dlpack_producers_change_in_place(group, producer):
    tensor = np.arange(6.0).reshape(2, 3)
    triple(group, producer(tensor))
    triple(group, producer(tensor.T))
    triple(group, producer(tensor[::-1]))
    assert (tensor == np.arange(6.0).reshape(2, 3) * FACTOR**3).all()


def test_dlpack_exchange_table(group):
    # Any strides are possible here; the layout says `None` for contiguous.
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    triple(group, Exchanged(tensor))
    assert (tensor == np.arange(6).reshape(2, 3) * FACTOR).all()
    halves = np.array([0x3F80, 0x4000], np.uint16)  # bfloat16 1.0 and 2.0
    triple(group, Exchanged(halves, code=4))
    assert halves.tolist() == [0x4040, 0x40C0]  # 3.0 and 6.0
    triple(group, Exchanged(np.zeros((0, 2))))
    with pytest.raises(ValueError, match="read-only"):
        triple(group, Exchanged(tensor, flags=1))
    with pytest.raises(ValueError, match="read-only"):
        triple(group, Exchanged(tensor, flags=2))
    with pytest.raises(polyrank.PolyrankError, match="(?i)cuda"):
        triple(group, Exchanged(tensor, device=2))
    with pytest.raises(ValueError, match="DLPack 2"):
        triple(group, Exchanged(tensor, major=2))
    with pytest.raises(TypeError, match="code 3"):
        triple(group, Exchanged(tensor, code=3))
    with pytest.raises(ValueError, match="gave no tensor"):
        triple(group, Exchanged(tensor, fails=True))
    gc.collect()
    group.barrier().wait()
    assert not Exchanged.live, "every tensor was given back"


def test_read_only_memory_is_input_only(group):
    given = np.arange(3.0)
    given.flags.writeable = False
    out = np.zeros(3)
    group.allgather([out], given).wait()
    assert out.tolist() == given.tolist()
    with pytest.raises(ValueError, match="'tensor'.*read-only"):
        group.allreduce(given)
    with pytest.raises(ValueError, match="'output_tensors'.*read-only"):
        group.allgather([given], out)
    with pytest.raises(ValueError, match="read-only"):
        group.allreduce(np.broadcast_to(np.ones(1), (3,)))
    with pytest.raises(ValueError, match="read-only"):
        group.allreduce(memoryview(b"12345678").cast("d"))
    assert given.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "value",
    [
        np.ones(2, ">f4"),
        np.ones(2, np.longdouble),
        np.array(["text"]),
        np.array([None]),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, [("a", "f4")]),
        np.ones(2, ml_dtypes.float8_e4m3fn),
        np.float64(1.0),
        np.int32(1),
        1.0,
        "text",
        b"bytes",
        {"a": 1},
        object(),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_what_is_no_tensor_is_a_type_error(group, value):
    with pytest.raises(TypeError):
        group.allreduce(value)


CALLS = [
    ("allreduce", lambda group, wrong: group.allreduce(wrong), "tensor"),
    ("allgather", lambda group, wrong: group.allgather([np.zeros(2)], wrong), "input_tensor"),
    ("broadcast", lambda group, wrong: group.broadcast(tensor=wrong, root=0), "tensor"),
    ("send", lambda group, wrong: group.send([wrong], 0), "tensors"),
    ("prepare_scan", lambda group, wrong: group.prepare_scan(wrong), "tensor"),
]
FIXED = np.zeros(2)
FIXED.flags.writeable = False
ARRAYS = [
    (np.ones(2, ">f4"), polyrank.InvalidTypeError, "has elements of dtype float32 in big-endian"),
    (np.array(["text"]), polyrank.InvalidTypeError, "has elements of"),
    (np.zeros(3, [("a", "f4"), ("b", "i1")])["a"], polyrank.InvalidArgumentError, "strides"),
    (FIXED, polyrank.InvalidArgumentError, "its memory is read-only"),
]


@pytest.mark.parametrize("called, call, name", CALLS, ids=lambda it: it if type(it) is str else "")
@pytest.mark.parametrize("array, kind, what", ARRAYS, ids=lambda it: it if type(it) is str else "")
def test_a_wrong_array_is_told_with_its_call_and_argument(
    group, called, call, name, array, kind, what
):
    if array is FIXED and called in ("allgather", "broadcast", "send"):
        return
    with pytest.raises(kind) as caught:
        call(group, array)
    assert str(caught.value).startswith(f"{called}(): argument '{name}'")
    assert what in str(caught.value)


def test_big_endian_says_so(group):
    with pytest.raises(TypeError, match="big-endian"):
        group.allreduce(np.ones(2, ">f4"))


def test_packed_fields_are_refused_not_misread(group):
    with pytest.raises(ValueError, match="contiguous copy"):
        group.allreduce(np.zeros(3, [("a", "f4"), ("b", "i1")])["a"])


def test_self_containing_lists_are_refused(group):
    tensors = []
    tensors.append(tensors)
    with pytest.raises(TypeError, match="nested"):
        group.allreduce(tensors)


def test_references_and_buffers_are_given_back(group):
    tensor = np.ones(3)
    before = sys.getrefcount(tensor)
    for _ in range(100):
        group.allreduce(tensor).wait()
        with pytest.raises(TypeError):
            group.allreduce(tensor, "wrong")
    gc.collect()
    assert sys.getrefcount(tensor) == before
    memory = bytearray(8)
    group.broadcast(memory, 0).wait()
    memory.extend(b"1")
    assert len(memory) == 9


def test_many_types_do_not_pile_up(group):
    for number in range(1000):
        kind = type(f"Kind{number}", (np.ndarray,), {})
        tensor = np.ones(2).view(kind)
        triple(group, tensor)
        assert tensor[0] == FACTOR
