"""The options of `reconfigure`, whose handles come in any container."""

# Handles are looked at before they are known to be some.
# pyright: basic

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Self, SupportsIndex

from polyrank import _core
from polyrank._core import InvalidArgumentError, InvalidTypeError

__all__ = ["ReconfigureOptions"]

_MISSING: Any = object()


class ReconfigureOptions(_core.ReconfigureOptions):
    """The members of a group from now on.

    `handles` are those of the members, in any iterable. Their positions are the new ranks if
    `ordered`; those of a set have none, so that it is not ordered unless that is asked for, which
    is an error. Without any arguments they are to be filled in: `options.uuid = 5`.
    """

    def __new__(
        cls,
        uuid: SupportsIndex = _MISSING,
        handles: Iterable[str] = _MISSING,
        ordered: bool | None = None,
        timeout: timedelta | float | None = None,
        hints: object | None = None,
    ) -> Self:
        required = {"uuid": uuid, "handles": handles}
        missing = [name for name, value in required.items() if value is _MISSING]
        is_blank = len(missing) == len(required) and (ordered, timeout, hints) == (None,) * 3
        if missing and not is_blank:
            raise InvalidTypeError(f"ReconfigureOptions(): argument '{missing[0]}' is missing")
        for name in required.keys() - missing:
            _refuse_none(name, required[name])
        if _has_no_order(handles):
            if ordered:
                raise InvalidArgumentError(
                    "ReconfigureOptions(): the 'handles' are a set, which has no order: pass a list"
                )
            ordered = False
        given: dict[str, Any] = {"ordered": ordered, "timeout": timeout, "hints": hints}
        if not is_blank:
            given |= {"uuid": uuid, "handles": _listed(handles)}
        return super().__new__(cls, **{name: it for name, it in given.items() if it is not None})

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("uuid", "handles"):
            _refuse_none(name, value)
        if name == "handles":
            if _has_no_order(value):
                self.ordered = False
            value = _listed(value)
        super().__setattr__(name, value)


def _refuse_none(name: str, value: object) -> None:
    """The core takes none for what is not given."""
    if value is None:
        raise InvalidTypeError(f"ReconfigureOptions(): argument '{name}' must not be None")


def _has_no_order(handles: object) -> bool:
    return isinstance(handles, (set, frozenset))


def _listed(handles: Any) -> Any:
    """A list of an iterable; what the core is to refuse stays what it is."""
    is_other = isinstance(handles, (str, bytes, Mapping)) or not isinstance(handles, Iterable)
    return handles if is_other else list(handles)
