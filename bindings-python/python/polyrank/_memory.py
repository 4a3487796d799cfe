"""Arrays whose memory polyrank allocates, so that ranks of one host read them where they lie."""

import math
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from polyrank import _core

if TYPE_CHECKING:
    import numpy

__all__ = ["empty"]

# NumPy's names of the element types that collectives take, by those of `DType`; bfloat16 is that of
# ml_dtypes.
ELEMENTS = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}


def empty(
    shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "float32"
) -> "numpy.ndarray[Any, Any]":
    """A new NumPy array, contiguous and filled with zeros.

    Collectives between ranks of one host are fastest on such arrays: messages of 256 KiB and more
    are read or reduced where they lie, and nothing is copied into a buffer first. An array, and any
    view of it, keeps the memory; it is given back to the system with the last of them. A process
    that was forked shares the memory with its parent, as it does no other array.

    Raises `TypeError` for a dtype that no collective takes, `ValueError` for more than there is.
    """
    import numpy

    lengths = _lengths(shape)
    if any(length < 0 for length in lengths):
        raise ValueError(f"an array cannot have the shape {lengths}")
    element = _element(dtype)
    if element.name not in ELEMENTS.values() or not element.isnative:
        order = "" if element.isnative else " of another machine's byte order"
        known = ", ".join(ELEMENTS.values())
        raise TypeError(
            f"no collective takes an array of dtype {element.name}{order}; expected one of {known}"
        )
    if 0 in lengths:
        return numpy.empty(lengths, element)
    length = math.prod(lengths) * element.itemsize
    if length > sys.maxsize:
        raise ValueError(f"not enough memory for {length} bytes")
    return array_over(getattr(_core, "_Memory")(length), lengths, element)


def array_over(memory: Any, shape: tuple[int, ...], dtype: Any) -> "numpy.ndarray[Any, Any]":
    """The array of elements that lie in memory of polyrank, which it keeps."""
    import numpy

    element = _element(ELEMENTS.get(dtype, dtype) if isinstance(dtype, str) else dtype)
    array: numpy.ndarray[Any, Any] = numpy.frombuffer(memory, dtype=numpy.uint8).view(element)
    return array.reshape(shape)


def _element(dtype: Any) -> "numpy.dtype[Any]":
    """NumPy's description of an element type."""
    import numpy

    if isinstance(dtype, _core.DType):
        dtype = ELEMENTS[dtype.name]
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise TypeError("arrays of bfloat16 need the package ml_dtypes") from error
        dtype = ml_dtypes.bfloat16
    element: numpy.dtype[Any] = numpy.dtype(dtype)
    return element


def _lengths(shape: Any) -> tuple[int, ...]:
    """A length, or several."""
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple(operator.index(length) for length in shape)
