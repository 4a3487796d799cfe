"""What a store that is written in Python gets, where its class has only a part of it.

`set`, `get`, `add`, `check`, `compare_set` and `delete_key` are what groups need; the rest is made
of them.
"""

# Methods are looked up by name.
# pyright: basic

import inspect
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import polyrank
from polyrank import _core

#: How often keys are asked for, where a class cannot wait itself, s.
_INTERVAL = 0.005

#: A store that has nothing: it checks its arguments, and does no more.
_NO_STORE = _core.Store()

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


def _check(method: Callable[..., Any], *given: Any) -> None:
    """Raises what a store of the package raises for arguments that cannot be."""
    try:
        method(_NO_STORE, *given)
    except polyrank.UnsupportedError:
        # It read them, and found nothing to do with them.
        return


def _limit(store: _core.Store, timeout: timedelta | float | None) -> timedelta:
    if timeout is None:
        return store.timeout
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)


def _wrong(store: _core.Store, method: str, what: str) -> Exception:
    return polyrank.DistStoreError(f"{type(store).__name__}.{method} {what}")


def _asked(store: _core.Store, method: str, *given: Any) -> Any:
    """What a method of the class itself returns, which must be no coroutine."""
    answer = getattr(store, method)(*given)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise _wrong(store, method, "is `async def`; a store's methods return their value")
    return answer


def _has_all(store: _core.Store, keys: list[str]) -> bool:
    answer = _asked(store, "check", keys)
    # NumPy's is no subclass of it.
    if not isinstance(answer, bool) and type(answer).__name__ not in ("bool", "bool_"):
        raise _wrong(store, "check", f"must return bool, not {type(answer).__name__}")
    return bool(answer)


def _wait(
    store: _core.Store, keys: Sequence[str], timeout: timedelta | float | None = None
) -> None:
    _check(_core.Store.wait, keys, *([] if timeout is None else [timeout]))
    limit = _limit(store, timeout)
    until = time.monotonic() + limit.total_seconds() if limit else None
    while not _has_all(store, list(keys)):
        if until is not None and time.monotonic() >= until:
            raise _expired("wait", ", ".join(keys), limit)
        time.sleep(_INTERVAL)


def _multi_get(store: _core.Store, keys: Sequence[str]) -> list[bytes]:
    _check(_core.Store.multi_get, keys)
    _asked(store, "wait", keys)
    return [_bytes(store, _asked(store, "get", key)) for key in keys]


def _bytes(store: _core.Store, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    try:
        view = memoryview(value)
    except TypeError:
        view = None
    if view is None or view.format not in ("B", "b", "c"):
        raise _wrong(store, "get", f"must return bytes or str, not {type(value).__name__}")
    return view.tobytes()


def _multi_set(store: _core.Store, keys: Sequence[str], values: Sequence[bytes]) -> None:
    _check(_core.Store.multi_set, keys, values)
    if len(keys) != len(values):
        counts = f"got {len(keys)} keys, {len(values)} values"
        raise polyrank.InvalidArgumentError(f"multi_set needs one value for each key, {counts}")
    for key, value in zip(keys, values, strict=True):
        _asked(store, "set", key, value)


def _num_keys(store: _core.Store) -> int:
    return len(_asked(store, "list_keys"))


def _barrier(
    store: _core.Store, key: str, world_size: int, timeout: timedelta | float | None = None
) -> None:
    _check(_core.Store.barrier, key, world_size, *([] if timeout is None else [timeout]))
    opened = f"{key}/last_member"
    count = _asked(store, "add", f"{key}/num_members", 1)
    if isinstance(count, bool) or not hasattr(type(count), "__index__"):
        raise _wrong(store, "add", f"must return int, not {type(count).__name__}")
    if count >= world_size:
        _asked(store, "set", opened, b"1")
        return
    limit = _limit(store, timeout)
    try:
        _asked(store, "wait", [opened], limit)
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
