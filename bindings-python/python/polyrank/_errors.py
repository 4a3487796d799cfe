"""What errors of every kind have: a message, and None for what only some cases of a kind say."""

from polyrank import _core
from polyrank._core import PolyrankError
from polyrank._error_fields import LACKED

__all__: list[str] = []


class _Message:
    """The message of an error that has no field of this name."""

    def __get__(self, error: PolyrankError | None, owner: type[PolyrankError]) -> str:
        if error is None:
            return ""
        # A `KeyError` shows its text in quotes.
        only = error.args[0] if len(error.args) == 1 else None
        return only if isinstance(only, str) else str(error)


def _complete() -> None:
    setattr(PolyrankError, "message", _Message())
    for name, fields in LACKED.items():
        for field in fields:
            setattr(getattr(_core, name), field, None)


_complete()
