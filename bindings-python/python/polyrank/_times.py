"""Times of `datetime` as text, and back, with what ISO 8601 has no words for.

A time zone of `zoneinfo` stands behind the text, as RFC 9557 has it: `…+02:00[Europe/Paris]`. So
does, in that standard's form for private use, that a time is the second one of its name: `[_fold=1]`.
"""

# pyright: basic

import datetime
from typing import Any

_FOLD = "_fold=1"


def text_of_time(time: datetime.datetime | datetime.time) -> str:
    """The text of a time, or of a date and a time."""
    zone = time.tzinfo
    suffix = ""
    if zone is not None and type(zone).__module__.partition(".")[0] == "zoneinfo":
        suffix = f"[{zone_name(zone)}]"
    if time.fold:
        suffix += f"[{_FOLD}]"
    return time.isoformat() + suffix


def datetime_of_text(text: Any) -> datetime.datetime:
    """The date and the time of a text."""
    return _of_text(datetime.datetime, text)


def time_of_text(text: Any) -> datetime.time:
    """The time of a text."""
    return _of_text(datetime.time, text)


def zone_name(zone: Any) -> str:
    """The key of a time zone of `zoneinfo`."""
    if zone.key is None:
        raise TypeError(f"{zone!r} has no key, by which others would find it")
    return zone.key


def zone_of(name: Any) -> Any:
    """The time zone of a key."""
    if not isinstance(name, str):
        raise TypeError(f"expected the key of a time zone, not {type(name).__name__}")
    # It takes a while to import, and few need it.
    import zoneinfo

    return zoneinfo.ZoneInfo(name)


def _of_text(cls: Any, text: Any) -> Any:
    if not isinstance(text, str):
        raise TypeError(f"expected a text, not {type(text).__name__}")
    plain, *suffixes = text.replace("]", "").split("[")
    time = cls.fromisoformat(plain)
    for suffix in suffixes:
        if suffix == _FOLD:
            time = time.replace(fold=1)
        else:
            time = time.replace(tzinfo=zone_of(suffix))
    return time
