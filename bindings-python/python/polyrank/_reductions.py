"""Functions of whole arrays as reduction operators."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

__all__: list[str] = []


def fold(function: Callable[[Any, Any], Any], arrays: "list[numpy.ndarray[Any, Any]]") -> None:
    """Combines the arrays of all ranks, in their order; the result is in the first one then."""
    import numpy

    combined = arrays[0]
    for array in arrays[1:]:
        combined = _operand(function(combined, array), array)
    if combined is not arrays[0]:
        numpy.copyto(arrays[0], combined)


def _operand(result: Any, like: "numpy.ndarray[Any, Any]") -> "numpy.ndarray[Any, Any]":
    """What a function returned, as an array like its operands."""
    import numpy

    if result is None:
        raise TypeError("the reduction function returned None; it must return an array")
    array: numpy.ndarray[Any, Any] = numpy.asarray(result)
    if array.shape != like.shape:
        raise ValueError(
            f"the reduction function returned an array of shape {array.shape}, not {like.shape}"
        )
    if array.dtype == like.dtype:
        return array
    if not numpy.can_cast(array.dtype, like.dtype, "same_kind"):
        raise TypeError(
            f"the reduction function returned an array of {array.dtype}, not {like.dtype}"
        )
    return array.astype(like.dtype)
