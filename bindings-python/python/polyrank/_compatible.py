"""Names that programs for torch.distributed use and the IDL has no words for."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, cast

from polyrank._core import (
    NcclConfig,
    NcclOptions,
    ProcessGroup,
    ReduceOp,
    Store,
    UnknownBackendError,
    backend_unavailable_reason,
    premul_sum,
    register_backend,
)

__all__ = ["ProcessGroupNCCL", "make_premul_sum", "reduce_op"]

make_premul_sum = premul_sum


class BackendMethods:
    """What the class of the names of backends can do; `Backend("TCP")` reads one in any case."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"Backend name must be a string, but got: {value!r}")
        known = {str(member): member for member in cast("Iterable[str]", cls)}
        if value.lower() not in known:
            # The core has the list of all that there are, and the words for others.
            text = backend_unavailable_reason(value)
            error = UnknownBackendError(text)
            error.backend, error.known = value, text.rpartition(": ")[2]
            raise error
        return known[value.lower()]

    @staticmethod
    def register_backend(
        name: str,
        func: Callable[[Store, int, int, timedelta], ProcessGroup],
        extended_api: bool = False,
        devices: Sequence[str] | None = None,
    ) -> None:
        """As the function `register_backend`."""
        register_backend(name, func, extended_api, devices)


class ProcessGroupNCCL:
    """Where c10d keeps the options of groups over NCCL. A group itself is a `ProcessGroup`."""

    Options = NcclOptions
    NCCLConfig = NcclConfig


class _Deprecated(type):
    @property
    def SUM(cls) -> ReduceOp:
        return _warned(ReduceOp.SUM)

    @property
    def PRODUCT(cls) -> ReduceOp:
        return _warned(ReduceOp.PRODUCT)

    @property
    def MIN(cls) -> ReduceOp:
        return _warned(ReduceOp.MIN)

    @property
    def MAX(cls) -> ReduceOp:
        return _warned(ReduceOp.MAX)


class reduce_op(metaclass=_Deprecated):
    """The former name of `ReduceOp`, which it warns about."""


def _warned(op: ReduceOp) -> ReduceOp:
    text = "`polyrank.reduce_op` is deprecated, please use `polyrank.ReduceOp` instead"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    return op
