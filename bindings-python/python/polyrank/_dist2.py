"""The names of `torch.distributed._dist2`: groups as objects, without a default group.

PyTorch no longer has that module; what it had is kept here.
"""

from datetime import timedelta
from itertools import count
from typing import Any

from polyrank._backends import ProcessGroupFactory
from polyrank._core import (
    BackendOptions,
    NcclOptions,
    ProcessGroup,
    current_process_group,
    join_group,
    process_group,
    register_backend,
)

__all__ = [
    "ProcessGroup",
    "ProcessGroupFactory",
    "current_process_group",
    "new_group",
    "process_group",
    "register_backend",
]

_OPTIONS = {"nccl": NcclOptions}
_numbers = count()


def new_group(
    backend: str | None = None,
    timeout: float | timedelta | None = None,
    device: Any = None,
    *,
    group_name: str | None = None,
    pg_options: BackendOptions | None = None,
    **options: Any,
) -> ProcessGroup:
    """Makes a group of all ranks that the environment names (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
    `MASTER_PORT`), which is registered nowhere: `destroy_process_group(group)` leaves it.

    `device` is this rank's, `options` are those of the backend, as attributes of `BackendOptions`
    or `NcclOptions`. Without a `group_name`, all ranks make their groups in one order.
    """
    if options:
        if pg_options is not None:
            raise TypeError("new_group(): both 'pg_options' and options of the backend are given")
        pg_options = _OPTIONS.get((backend or "").lower(), BackendOptions)(**options)
    return join_group(
        group_name or f"dist2_{next(_numbers)}",
        "env://",
        timeout,
        backend=backend,
        device_id=device,
        pg_options=pg_options,
    )
