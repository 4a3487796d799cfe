"""Times of `datetime` as text, and back, with what ISO 8601 has no words for.

A time zone of `zoneinfo` stands behind the text, as RFC 9557 has it: `…+02:00[Europe/Paris]`. So
do, in that standard's form for private use, the name of a zone that has an offset alone:
`[_zone=CET]`, and that a time is the second one of its name: `[_fold=1]`.
"""

# pyright: basic

import datetime
from typing import Any
from urllib.parse import quote, unquote

_FOLD = "_fold=1"
_ZONE = "_zone="


def text_of_time(time: datetime.datetime | datetime.time) -> str:
    """The text of a time, or of a date and a time."""
    zone = time.tzinfo
    suffix = ""
    if isinstance(zone, datetime.timezone):
        name = _own_name(zone)
        if name is not None:
            # Of brackets and signs, a name may have any.
            suffix = f"[{_ZONE}{quote(name, safe='')}]"
    elif zone is not None and _is_of_zoneinfo(type(zone)):
        suffix = f"[{zone_name(zone)}]"
    elif zone is not None:
        raise TypeError(
            f"time zones of type {type(zone).__module__}.{type(zone).__qualname__} are not encoded "
            "as CBOR; convert with astimezone() to one of zoneinfo or to datetime.timezone.utc"
        )
    if time.fold:
        suffix += f"[{_FOLD}]"
    return time.isoformat() + suffix


def datetime_of_text(text: Any) -> datetime.datetime:
    """The date and the time of a text."""
    time: datetime.datetime = _of_text(datetime.datetime, text)
    return time


def time_of_text(text: Any) -> datetime.time:
    """The time of a text."""
    time: datetime.time = _of_text(datetime.time, text)
    return time


def plain_zone(zone: datetime.timezone) -> Any:
    """The seconds from UTC, and the name, if the zone was given one."""
    seconds = zone.utcoffset(None).total_seconds()
    name = _own_name(zone)
    return seconds if name is None else [seconds, name]


def zone_of_plain(plain: Any) -> datetime.timezone:
    """The time zone of seconds from UTC, and of a name."""
    seconds, *names = plain if isinstance(plain, list) else [plain]
    return datetime.timezone(datetime.timedelta(seconds=seconds), *names)


def zone_name(zone: Any) -> str:
    """The key of a time zone of `zoneinfo`."""
    if zone.key is None:
        raise TypeError(f"{zone!r} has no key, by which others would find it")
    key: str = zone.key
    return key


def zone_of(name: Any) -> Any:
    """The time zone of a key."""
    if not isinstance(name, str):
        raise TypeError(f"expected the key of a time zone, not {type(name).__name__}")
    # It takes a while to import, and few need it.
    import zoneinfo

    return zoneinfo.ZoneInfo(name)


def _own_name(zone: datetime.timezone) -> str | None:
    """A name that does not follow from the offset."""
    name = zone.tzname(None)
    return None if name == datetime.timezone(zone.utcoffset(None)).tzname(None) else name


def _is_of_zoneinfo(cls: type) -> bool:
    return (cls.__module__.partition(".")[0], cls.__qualname__) == ("zoneinfo", "ZoneInfo")


def _of_text(cls: Any, text: Any) -> Any:
    if not isinstance(text, str):
        raise TypeError(f"expected a text, not {type(text).__name__}")
    plain, *suffixes = text.replace("]", "").split("[")
    time = cls.fromisoformat(plain)
    for suffix in suffixes:
        if suffix == _FOLD:
            time = time.replace(fold=1)
        elif suffix.startswith(_ZONE):
            name = unquote(suffix.removeprefix(_ZONE), errors="strict")
            time = time.replace(tzinfo=datetime.timezone(time.utcoffset(), name))
        else:
            time = time.replace(tzinfo=zone_of(suffix))
    return time
