"""What the core asks of a store that is written in Python, where its class has only a part of it.

`set`, `get`, `add`, `check`, `compare_set` and `delete_key` are what groups need; the rest is made
of them.
"""

# Methods are looked up by name.
# pyright: basic

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from polyrank import _core

#: How often keys are asked for, where a class cannot wait itself, s.
_INTERVAL = 0.005


def ask(store: _core.Store, method: str, arguments: tuple[Any, ...]) -> Any:
    """The answer of a method, or what other methods make of it if the class has none."""
    if _has(store, method) or method not in _OF_OTHERS:
        return getattr(store, method)(*arguments)
    return _OF_OTHERS[method](store, *arguments)


def _has(store: _core.Store, method: str) -> bool:
    return getattr(type(store), method, None) is not getattr(_core.Store, method)


def _wait(store: _core.Store, keys: Sequence[str], timeout: timedelta | None = None) -> None:
    limit = store.timeout if timeout is None else timeout
    until = time.monotonic() + limit.total_seconds() if limit else None
    while not store.check(list(keys)):
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"the keys {list(keys)} did not come")
        time.sleep(_INTERVAL)


def _multi_get(store: _core.Store, keys: Sequence[str]) -> list[bytes]:
    ask(store, "wait", (keys,))
    return [store.get(key) for key in keys]


def _multi_set(store: _core.Store, keys: Sequence[str], values: Sequence[bytes]) -> None:
    for key, value in zip(keys, values, strict=True):
        store.set(key, value)


def _num_keys(store: _core.Store) -> int:
    return len(store.list_keys())


_OF_OTHERS: dict[str, Callable[..., Any]] = {
    "wait": _wait,
    "multi_get": _multi_get,
    "multi_set": _multi_set,
    "num_keys": _num_keys,
}
