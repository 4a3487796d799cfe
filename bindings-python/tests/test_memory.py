"""Arrays that polyrank allocates: ordinary arrays, which operations use where they lie."""

import ctypes
import gc
import mmap
import os

import ml_dtypes
import numpy as np
import pytest

import polyrank

# Its number on all processors but Alpha.
MEMFD_SECRET = 447


def test_they_are_ordinary_arrays():
    for shape, dtype in [(7, "float32"), ((3, 5), np.int64), ((), "bool"), ((0, 4), "float16")]:
        array = polyrank.empty(shape, dtype)
        expected = np.zeros(shape, dtype)
        assert array.shape == expected.shape and array.dtype == expected.dtype
        assert array.flags.c_contiguous and array.flags.writeable
        assert (array == expected).all()
        array[...] = 1
        assert (array == np.ones(shape, dtype)).all()
    assert polyrank.empty(3).dtype == np.float32
    for name in ["bool", *(kind.name for kind in map(np.dtype, "BbHhIiQqefdFD"))]:
        known = {"bool": "bool", "complex64": "complex64", "complex128": "complex128"}
        short = name.replace("uint", "u").replace("int", "i").replace("float", "f")
        described = polyrank.DType(known.get(name, short))
        assert polyrank.empty(3, described).dtype == np.dtype(name)
    for bfloat16 in (polyrank.DType.bf16, "bfloat16", ml_dtypes.bfloat16):
        assert polyrank.empty(3, bfloat16).dtype == np.dtype(ml_dtypes.bfloat16)


def test_wrong_arguments_are_refused():
    for shape in [-1, (3, -1)]:
        with pytest.raises(ValueError, match="shape"):
            polyrank.empty(shape)
    for dtype in [object, "longdouble", "U8", "datetime64[s]", "V8", ">f4", [("a", "f4")]]:
        with pytest.raises(TypeError, match="uint8.*float32"):
            polyrank.empty(3, dtype)
    with pytest.raises(TypeError):
        polyrank.empty("three")
    for shape in [1 << 62, (1 << 40, 1 << 40)]:
        with pytest.raises(ValueError, match="not enough memory"):
            polyrank.empty(shape)
    # More than any machine has, though the system would promise it.
    with pytest.raises(ValueError, match="not enough memory"):
        polyrank.empty(1 << 46, np.uint8)


def shared_bytes():
    """Bytes of memory of this process that lie in files without a name."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["RssShmem"].split()[0]) * 1024


def test_memory_goes_with_the_last_view():
    before = shared_bytes()
    arrays = [polyrank.empty(1 << 20, np.uint8) for _ in range(16)]
    arrays.append(polyrank.empty(64 << 20, np.uint8))
    for array in arrays:
        array.fill(1)
    assert shared_bytes() >= before + (80 << 20)
    view = arrays[-1][5:7]
    arrays.clear()
    del array
    gc.collect()
    assert view.tolist() == [1, 1]
    assert shared_bytes() >= before + (60 << 20)
    del view
    gc.collect()
    assert shared_bytes() < before + (8 << 20)


def every_collective(here):
    group, rank, size = here.group, here.rank, here.size
    for elements in [5, 10_000, 300_000]:
        array = polyrank.empty(elements * size, np.float64)
        for _ in range(3):
            array[...] = np.arange(elements * size) + rank
            group.allreduce(array).wait()
            total = np.arange(elements * size) * size + sum(range(size))
            assert (array == total).all()
        out = polyrank.empty(elements, np.float64)
        array[...] = rank
        group.reduce_scatter([out], [list(np.split(array, size))]).wait()
        assert (out == sum(range(size))).all()
        out[...] = rank
        parts = [polyrank.empty(elements, np.float64) for _ in range(size)]
        group.allgather([parts], [out]).wait()
        for other, part in enumerate(parts):
            assert (part == other).all()
        array[...] = rank
        group.broadcast(array, size - 1).wait()
        assert (array == size - 1).all()
        sent, received = polyrank.empty(elements), polyrank.empty(elements)
        sent[...] = rank
        if size > 1:
            work = group.send([sent], (rank + 1) % size)
            group.recv([received], (rank - 1) % size).wait()
            work.wait()
            assert (received == (rank - 1) % size).all()


def test_collectives(world):
    world.run(every_collective)


def overwritten(here):
    """What is computed in place right after an operation does not disturb the others."""
    array = polyrank.empty(200_000, np.float64)
    for round_ in range(30):
        array[...] = round_ + here.rank
        here.group.allreduce(array).wait()
        assert (array == round_ * here.size + sum(range(here.size))).all()
        array[...] = -1


def test_memory_is_free_when_the_operation_is_over(trio):
    trio.run(overwritten)


def test_a_forked_child_leaves_the_memory_alone():
    array = polyrank.empty(100_000, np.uint8)
    array.fill(3)
    child = os.fork()
    if child == 0:
        own = polyrank.empty(100_000, np.uint8)
        own.fill(9)
        del own, array
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (array == 3).all()


def unreadable(count):
    """An array that this process can use and no other process can read, where the system has such
    memory: memfd_secret(2).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(MEMFD_SECRET, 0)
    if descriptor < 0:
        return np.zeros(count, np.int32)
    os.ftruncate(descriptor, 4 * count)
    array = np.frombuffer(mmap.mmap(descriptor, 4 * count, mmap.MAP_SHARED), np.int32)
    os.close(descriptor)
    return array


def of_nobody_else(here):
    for count in [10_000, 300_000]:
        given, taken = unreadable(count), np.zeros(here.size * count, np.int32)
        for round_ in range(30):
            given[...] = here.rank + round_
            here.group.all_gather_single(taken, given).wait()
            expected = np.repeat(np.arange(here.size) + round_, count)
            assert (taken == expected).all()
            here.group.all_to_all_single(taken[:count], given).wait()
            blocks = expected.reshape(here.size, count)[:, : count // here.size]
            assert (taken[:count] == blocks.ravel()).all()
            here.group.broadcast(given, round_ % here.size).wait()
            assert (given == round_ % here.size + round_).all()


def test_memory_that_others_cannot_read_is_sent(pair):
    pair.run(of_nobody_else)
