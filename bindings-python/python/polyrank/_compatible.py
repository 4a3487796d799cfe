"""Names that programs for torch.distributed use and the IDL has no words for."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from polyrank import _core
from polyrank._core import (
    NcclConfig,
    NcclOptions,
    QueueEmptyError,
    ReduceOp,
    UnknownBackendError,
    backend_unavailable_reason,
    get_default_backend_for_device,
    premul_sum,
    register_backend,
)

__all__ = ["DistQueueEmptyError", "ProcessGroupNCCL", "make_premul_sum", "reduce_op"]

make_premul_sum = premul_sum

#: The name that c10d's own language has for it.
DistQueueEmptyError = QueueEmptyError


_devices: Callable[[str], list[str]] = getattr(_core, "_backend_devices")


class _Capability(Mapping[str, list[str]]):
    """The kinds of devices that each backend may be named for, those registered later too."""

    def __getitem__(self, backend: str) -> list[str]:
        try:
            return _devices(backend)
        except UnknownBackendError:
            raise KeyError(backend) from None

    def __iter__(self) -> Iterator[str]:
        from polyrank._enums import Backend

        return (str(name) for name in Backend if not _is_unknown(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def _is_unknown(backend: str) -> bool:
    try:
        _devices(backend)
    except UnknownBackendError:
        return True
    return False


class _Names:
    """The names of all backends as a list, those registered later too."""

    def __get__(self, instance: object, owner: type) -> list[str]:
        return [str(member) for member in cast("Iterable[str]", owner)]


class BackendMethods:
    """What the class of the names of backends can do; `Backend("TCP")` reads one in any case."""

    backend_capability: ClassVar[Mapping[str, list[str]]] = _Capability()
    """The kinds of devices that each backend may be named for."""
    default_device_backend_map: ClassVar[dict[str, str]] = {
        device: get_default_backend_for_device(device) for device in ("cpu", "cuda")
    }
    """The backend that serves a kind of device where none is named."""
    backend_list: ClassVar[_Names] = _Names()
    """The names of all backends."""

    @classmethod
    def _add(cls, name: str) -> None:
        """A member for a backend that was registered: `Backend.MINE`."""
        value = name.lower()
        member: Any = str.__new__(cast("Any", cls), value)
        key = value.upper().replace("-", "_").replace(".", "_")
        member._name_, member._value_, member.__objclass__ = key, value, cls
        known = cast("Any", cls)
        known._member_names_.append(key)
        known._member_map_[key] = member
        known._value2member_map_[value] = member
        # The class of enums refuses to set members, and this one is new.
        type.__setattr__(cls, key, member)

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
        func: Callable[..., Any],
        extended_api: bool = False,
        devices: str | Sequence[str] | None = None,
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
