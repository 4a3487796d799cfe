"""A Python rank that exchanges arrays as objects with ranks of any language.

run.mjs is the same in JavaScript. Each rank makes the arrays itself, so that a reader's expected
values are its own.
"""

import sys

import ml_dtypes
import numpy as np
import polyrank as pr

ELEMENTS = [
    np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64,
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128,
]
SHAPES = [(), (1,), (5,), (0,), (2, 3), (0, 3), (2, 0)]


def elements(dtype, shape):
    """The elements 0, 1, 2, …; of complex numbers, the imaginary part is one more."""
    numbers = np.arange(np.prod(shape, dtype=int))
    if np.issubdtype(dtype, np.complexfloating):
        numbers = numbers + 1j * (numbers + 1)
    if dtype is np.bool_:
        numbers = numbers % 2
    return numbers.astype(dtype).reshape(shape)


def own_arrays():
    """Every type and shape; those of two dimensions lie column by column."""
    return [np.asarray(elements(dtype, shape), order="F") for dtype in ELEMENTS for shape in SHAPES]


def check(arrays, what):
    expected = [elements(dtype, shape) for dtype in ELEMENTS for shape in SHAPES]
    for came, array in zip(arrays, expected, strict=True):
        about = f"{what}: {array.dtype} of {array.shape} came as {came!r}"
        if type(came) is not np.ndarray or (came.dtype, came.shape) != (array.dtype, array.shape):
            raise AssertionError(about)
        if came.tobytes() != array.tobytes():
            raise AssertionError(about)


def main():
    """Runs all; the exit code is 1 if something was not as it should be."""
    pr.init_process_group(timeout=60)
    rank, size = pr.get_rank(), pr.get_world_size()
    came = [None] * size
    pr.all_gather_object(came, own_arrays())
    for source, arrays in enumerate(came):
        check(arrays, f"from rank {source}")
    back = [None] * size
    pr.all_gather_object(back, came)
    for reader, lists in enumerate(back):
        for source, arrays in enumerate(lists):
            check(arrays, f"from rank {source} by way of rank {reader}")
    pr.destroy_process_group()
    print(f"Python rank {rank} of {size}: arrays passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
