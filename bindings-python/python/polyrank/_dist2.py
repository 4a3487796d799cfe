"""The names of `torch.distributed._dist2`: groups as objects, without a default group.

PyTorch no longer has that module; what it had is kept here.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from polyrank import _core
from polyrank._backends import chosen_for_group, is_registered
from polyrank._core import (
    BackendOptions,
    NcclOptions,
    ProcessGroup,
    Store,
    current_process_group,
    join_group,
    process_group,
)

__all__ = [
    "ProcessGroup",
    "ProcessGroupFactory",
    "current_process_group",
    "new_group",
    "process_group",
    "register_backend",
]


class ProcessGroupFactory(Protocol):
    """What `register_backend` takes: makes the backend of this rank in a new group.

    `device` and the keywords are those that `new_group` was called with.
    """

    def __call__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        timeout: timedelta,
        device: Any,
        /,
        **options: Any,
    ) -> Any: ...


def register_backend(
    name: str,
    func: ProcessGroupFactory | Callable[..., Any],
    extended_api: bool = False,
    devices: Any = None,
) -> None:
    """As `polyrank.register_backend`: the same backends, and the same factories.

    A factory gets the device if its fifth parameter is named `device`, or has no default.
    """
    factory: Any = func
    _core.register_backend(name, factory, extended_api, devices)


_OPTIONS = {"nccl": NcclOptions}
#: The number of the next group without a name, and who makes one.
_next_number = 0
_numbering = threading.Lock()


def new_group(
    backend: str | None = None,
    timeout: float | timedelta | None = None,
    device: Any = None,
    *,
    group_name: str | None = None,
    pg_options: Any = None,
    **options: Any,
) -> ProcessGroup:
    """Makes a group of all ranks that the environment names (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
    `MASTER_PORT`), which is registered nowhere: `destroy_process_group(group)` leaves it.

    `device` is this rank's, `options` are those of the backend, as attributes of `BackendOptions`
    or `NcclOptions`; the factory of a backend that was registered gets them, or `pg_options`, as
    with `init_process_group`: as keywords, or as they are with `extended_api`.
    Without a `group_name`, all ranks make their groups in one order, in which a group that could
    not be made does not count.
    """
    if backend is not None and is_registered(backend):
        if options and pg_options is not None:
            raise TypeError("new_group(): both 'pg_options' and options of the backend are given")
        return _joined(group_name, timeout, backend, device, options or pg_options)
    if options:
        if pg_options is not None:
            raise TypeError("new_group(): both 'pg_options' and options of the backend are given")
        pg_options = _OPTIONS.get((backend or "").lower(), BackendOptions)(**options)
    return _joined(group_name, timeout, backend, device, pg_options)


def _joined(
    name: str | None,
    timeout: float | timedelta | None,
    backend: str | None,
    device: Any,
    pg_options: Any,
) -> ProcessGroup:
    """The group of this name, or of the next number."""
    global _next_number

    def join(name: str) -> ProcessGroup:
        with chosen_for_group(name, device):
            return join_group(
                name, "env://", timeout, backend=backend, device_id=device, pg_options=pg_options
            )

    if name:
        return join(name)
    with _numbering:
        group = join(f"dist2_{_next_number}")
        _next_number += 1
        return group
