"""Functions whose calls are in a block, for blocks that decorate them as well."""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["decorated"]


def decorated(
    block: AbstractContextManager[Any], function: Callable[..., Any]
) -> Callable[..., Any]:
    """`function`, whose calls enter the block; of a coroutine function, while it runs."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*positional: Any, **keywords: Any) -> Any:
            with block:
                return await function(*positional, **keywords)

        return awaited

    @functools.wraps(function)
    def called(*positional: Any, **keywords: Any) -> Any:
        with block:
            return function(*positional, **keywords)

    return called
