"""What a store that is written in Python gets, where its class has only a part of it.

`set`, `get`, `add`, `check`, `compare_set` and `delete_key` are what groups need; the rest is made
of them.
"""

# Methods are looked up by name.
# pyright: basic

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import polyrank
from polyrank import _core

#: How often keys are asked for, where a class cannot wait itself, s.
_INTERVAL = 0.005

#: What `has_extended_api` promises, besides what is made of other methods.
_EXTENDED = ("append", "queue_push", "queue_pop", "queue_len")


def complete(cls: type[_core.Store]) -> None:
    """Gives a class the methods that it lacks and that are made of its own."""
    for name, (method, parts) in _OF_OTHERS.items():
        if not _has(cls, name) and any(_has(cls, part) for part in parts):
            setattr(cls, name, method)
    others = [base for base in cls.__mro__ if base.__module__ == _core.Store.__module__]
    if others == [_core.Store] and not _has(cls, "has_extended_api"):
        setattr(cls, "has_extended_api", _has_extended_api)  # noqa: B010


def _has(cls: type[_core.Store], method: str) -> bool:
    return getattr(cls, method, None) is not getattr(_core.Store, method)


def _has_extended_api(store: _core.Store) -> bool:
    return all(_has(type(store), method) for method in _EXTENDED)


def _expired(operation: str, keys: str, limit: timedelta) -> Exception:
    waited_ms = round(limit.total_seconds() * 1000)
    text = f"store operation {operation} timed out after {waited_ms} ms, keys: {keys}"
    error = polyrank.StoreTimeoutError(text)
    error.operation, error.keys, error.waited_ms = operation, keys, waited_ms
    return error


def _limit(store: _core.Store, timeout: timedelta | float | None) -> timedelta:
    if timeout is None:
        return store.timeout
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)


def _wait(
    store: _core.Store, keys: Sequence[str], timeout: timedelta | float | None = None
) -> None:
    limit = _limit(store, timeout)
    until = time.monotonic() + limit.total_seconds() if limit else None
    while not store.check(list(keys)):
        if until is not None and time.monotonic() >= until:
            raise _expired("wait", ", ".join(keys), limit)
        time.sleep(_INTERVAL)


def _multi_get(store: _core.Store, keys: Sequence[str]) -> list[bytes]:
    store.wait(keys)
    values: list[Any] = [store.get(key) for key in keys]
    return [value.encode() if isinstance(value, str) else bytes(value) for value in values]


def _multi_set(store: _core.Store, keys: Sequence[str], values: Sequence[bytes]) -> None:
    if len(keys) != len(values):
        counts = f"got {len(keys)} keys, {len(values)} values"
        raise polyrank.InvalidArgumentError(f"multi_set needs one value for each key, {counts}")
    for key, value in zip(keys, values, strict=True):
        store.set(key, value)


def _num_keys(store: _core.Store) -> int:
    return len(store.list_keys())


def _barrier(
    store: _core.Store, key: str, world_size: int, timeout: timedelta | float | None = None
) -> None:
    opened = f"{key}/last_member"
    if store.add(f"{key}/num_members", 1) >= world_size:
        store.set(opened, b"1")
        return
    limit = _limit(store, timeout)
    try:
        store.wait([opened], limit)
    except TimeoutError as error:
        raise _expired("barrier", key, limit) from error


#: What a method is made by, and of which others.
_OF_OTHERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "wait": (_wait, ("check",)),
    "multi_get": (_multi_get, ("get", "wait")),
    "multi_set": (_multi_set, ("set",)),
    "num_keys": (_num_keys, ("list_keys",)),
    "barrier": (_barrier, ("add", "set", "wait")),
}
