"""Functions of whole arrays as reduction operators."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyrank._core import ReductionFailedError

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

    expected = f"where an array of {like.dtype} of shape {like.shape} was expected"
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            # Nobody awaits it, which Python would warn of.
            result.close()
        raise _failed(f"a {type(result).__name__} {expected}: it must not be async")
    if result is None:
        raise _failed(f"None {expected}")
    try:
        array: numpy.ndarray[Any, Any] = numpy.asarray(result)
    except Exception as error:
        raise _failed(f"a {type(result).__name__} {expected}") from error
    if array.shape != like.shape:
        raise _failed(f"an array of shape {array.shape} {expected}")
    if array.dtype == like.dtype:
        return array
    if not numpy.can_cast(array.dtype, like.dtype, "same_kind"):
        raise _failed(f"an array of {array.dtype} {expected}")
    with numpy.errstate(all="ignore"):
        kept: numpy.ndarray[Any, Any] = array.astype(like.dtype)
    if like.dtype.kind in "biu":
        lost = kept != array
    else:
        # Rounded, it is still about that; infinite, it is not.
        lost = numpy.isfinite(array) & ~numpy.isfinite(kept)
    if lost.any():
        raise _failed(f"{array[lost][0]}, which {like.dtype} does not hold")
    return kept


def _failed(came: str) -> ReductionFailedError:
    """The error of a function that returned something else than an array like its operands."""
    text = f"the reduction function returned {came}"
    error = ReductionFailedError(text)
    error.message = text
    return error
