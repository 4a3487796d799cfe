"""`Future`: what a work gives, as a future of `concurrent.futures` too."""

# The two classes have one method of other types of callbacks.
# pyright: basic

import concurrent.futures
from typing import Any

from polyrank import _core

__all__ = ["Future"]


class Future(_core.Future, concurrent.futures.Future):  # type: ignore[type-arg, misc]
    """A value that is available when an operation is complete.

    It cannot be cancelled. `asyncio.wrap_future` and `concurrent.futures.wait` take it.
    """

    def __init__(self, source: object) -> None:
        """Made by `Work.get_future` and `Future.then`."""
        concurrent.futures.Future.__init__(self)
        self.set_running_or_notify_cancel()
        # The first callback: whoever is told later finds the outcome.
        _core.Future.add_done_callback(self, _settle)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the value, no longer than `timeout` seconds, and returns it."""
        return self.wait() if timeout is None else super().result(timeout)


def _settle(future: _core.Future) -> None:
    assert isinstance(future, Future)
    try:
        value = future.value()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)
