"""Batches of collectives, as `torch.distributed._coalescing_manager` makes them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from polyrank import _core
from polyrank._core import ProcessGroup, Work

__all__ = ["CoalescingManager", "coalescing_manager"]

_begin = cast(Callable[[ProcessGroup | None], None], getattr(_core, "_begin_coalescing"))
_end = cast(Callable[[], list[Work]], getattr(_core, "_end_coalescing"))


class CoalescingManager:
    """The operations of one batch. `wait` waits for all of them."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def __repr__(self) -> str:
        return f"CoalescingManager({self.works!r})"

    def append(self, work: Work | None = None) -> None:
        """Adds an operation to the batch."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Waits until all operations are complete; raises the error of the first that failed."""
        first: Exception | None = None
        for work in self.works:
            try:
                work.wait()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


@contextmanager
def coalescing_manager(
    group: ProcessGroup | None = None, device: Any = None, async_ops: bool = False
) -> Generator[CoalescingManager, None, None]:
    """A block whose collectives are one batch: none waits for the one before.

    Functions such as `all_reduce` return immediately in the block, and all are waited for at its
    end, or by the manager's `wait` with `async_ops`. Their tensors must not be touched before. The
    batch is that of one group and one thread. `isend` and `irecv` give a `Work` of their own.
    `device` is accepted for programs written for torch.distributed: every backend has batches.
    """
    del device
    manager = CoalescingManager()
    _begin(group)
    try:
        yield manager
    finally:
        for work in _end():
            manager.append(work)
    if not async_ops:
        manager.wait()
